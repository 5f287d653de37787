"""`r3l exam`: ways to give credit, scored on what turns were worth."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from flows.cli.options import AsJson, Branch, EnvironmentName, Policy, Root, Set, at
from flows.cli.screen.console import say_json, screen
from r3l.errors import ConfigError
from r3l.lab.exam.folder import SETTINGS, Folder
from r3l.lab.exam.records import Exam
from r3l.system.home import locate

KEPT = "data/exams"


def exam(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="runs, one per policy, or folders that an exam was kept in"),
    ] = None,
    continuations: Annotated[
        int, typer.Option(min=5, max=1000, help="episodes played on from each state; the first 3 are VinePPO's own")
    ] = 12,
    groups: Annotated[int, typer.Option(min=0, help="stored groups of each run, drawn by the seed; 0: all")] = 0,
    iteration: Annotated[int, typer.Option(min=0, help="a stored iteration")] = 0,
    branch: Branch = "",
    policy: Policy = "",
    environment: EnvironmentName = "",
    set_: Set = None,
    method: Annotated[
        list[str] | None, typer.Option(help="also score this preset or module:Class; may be repeated")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed of continuations, groups, random pivots")] = 0,
    out: Annotated[Path, typer.Option(help="folder in which each run's continuations are kept")] = Path(KEPT),
    page: Annotated[Path | None, typer.Option(help="file of a page to write, with a picture beside it")] = None,
    store: Root = "",
    as_json: AsJson = False,
) -> None:
    """Measure what each turn of stored groups was worth, by playing on from it under the policy that sampled it, and
    score every way to give credit on that. With --policy and --environment groups are sampled first. Run it again to
    go on where it ended; what was played is kept."""
    from r3l.lab.exam.scores import scores
    from r3l.lab.exam.truth import reliability
    from r3l.lab.exam.ways import ways

    names = list(runs or [])
    all_ways = ways(method or [], seed)  # what is wrong with a method is said before anything is played
    if policy or environment:
        names = [sampled(names, policy, environment, at(store, set_))]
    elif not names:
        raise ConfigError("no run is named: give its name, a folder of an exam, or --policy and --environment")
    asked = {"branch": branch, "iteration": iteration, "continuations": continuations, "groups": groups, "seed": seed}
    exams = [examined(name, store, out, asked) for name in names]
    scored = scores(all_ways, exams)
    if page:
        from r3l.lab.exam.page import write_page

        write_page(exams, scored, page)
    sure = reliability([group for one in exams for group in one.groups])
    if as_json:
        say_json({"reliability": sure})
        for way, own in scored.items():
            say_json({"way": way, "policies": {one.name: asdict(s) for one, s in zip(exams, own, strict=True)}})
        return
    screen().print(score_table(scored, f"{', '.join(one.name for one in exams)}: reliability of the truth {sure:.2f}"))


def examined(name: str, store: str, out: Path, asked: dict[str, Any]) -> Exam:
    """Read the exam that a folder holds, or play that of a run."""
    if (Path(name) / SETTINGS).is_file():
        return Folder(Path(name), reading=True).exam()
    # these bring the sampling side of the pipeline, which a folder needs not
    from r3l.lab.exam.play import Asked, play_exam
    from r3l.store.stage import Store

    console = screen(stderr=True)
    opened = Store.open(store, reading=True)
    return play_exam(opened, Asked(name, **asked), locate(out) / name, lambda line: console.print(line))


def score_table(scored: Mapping[str, Sequence[Any]], title: str) -> Table:
    """Draw one line per way, the highest correlation first."""
    from r3l.lab.exam.page import FIGURES, table

    grid = Table(title=title, title_justify="left")
    grid.add_column("credit", min_width=13)  # in 80 columns names and figures break between words
    for name in FIGURES.values():
        grid.add_column(name, justify="right", min_width=max(7, *map(len, name.split())))
    for name, figures in table(scored):
        grid.add_row(name, *map(str, figures))
    return grid


def sampled(names: list[str], policy: str, environment: str, assignments: list[str]) -> str:
    """Sample the groups of one iteration of R3L, without its update, and name the run."""
    from contextlib import closing

    from flows.cli.settings import settings
    from r3l.lab.exam.play import sample_groups
    from r3l.pipeline.tools import Tools
    from r3l.store.stage import Store

    if len(names) > 1:
        raise ConfigError(f"--policy and --environment sample one run, and {len(names)} are named: {', '.join(names)}")
    name = names[0] if names else "exam"
    config = settings(name, "paper", "r3l", policy, environment, "", assignments)
    with closing(Tools()) as tools:
        sample_groups(config, Store.open(config.store.root), tools)
    return name

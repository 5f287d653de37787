"""`r3l prepare`: an environment's data, found or downloaded, verified, listed. `r3l new`: a package to start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flows.cli.options import Branch, Root
from flows.cli.screen.console import say, screen
from r3l import plugins
from r3l.config.compose import assigned
from r3l.environments.prepare.prepare import prepare as make_ready
from r3l.errors import ConfigError
from r3l.home import home, located
from r3l.pasted import program
from r3l.scaffold.package import write_package
from r3l.store.stage import Store


def prepare(
    kind: Annotated[str, typer.Argument(help="alfworld, webshop, scienceworld, math, household, or a plug-in's")],
    data_root: Annotated[Path, typer.Option(help="folder for the data")] = Path("data/tasks"),
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a setting of the environment, e.g. games=downloaded")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="only this split, e.g. test; may be repeated")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="alfworld: accept a folder that has only a part of the downloaded games")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="fetch nothing, only report what is missing")] = False,
) -> None:
    """Find or download an environment's data, verify counts and hashes, write the task manifest."""
    if plugins.dotted(kind):
        plugins.look_in(Path.cwd())
        plugins.allow(kind)
    settings = assigned({"games": "downloaded", "partial": True} if partial else {}, set_ or [])
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen(stderr=True), transient=True) as bars:
        shown: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in shown:
                shown[what] = bars.add_task(what, total=total)
            bars.update(shown[what], completed=done, total=total)

        ready = make_ready(kind, data_root, settings, splits=split or (), download=not offline, progress=report)
    for note in ready.notes:
        say(note)
    say(json.dumps(ready.splits))
    say(f"{ready.kind}: ready, listed in {ready.manifest}")


def export_policy(
    policy: Annotated[str, typer.Argument(help="a run's name, or a policy's folder")],
    out: Annotated[Path | None, typer.Argument(help="folder for the model; empty: data/export/NAME")] = None,
    base: Annotated[Path | None, typer.Option(help="an adapter's base model; empty: what it names itself")] = None,
    iteration: Annotated[
        int | None, typer.Option(min=0, help="iteration of the run whose policy is exported; empty: the newest")
    ] = None,
    branch: Branch = "",
    to_hub: Annotated[str, typer.Option(metavar="ORG/NAME", help="upload it to the hub, with a model card")] = "",
    public: Annotated[bool, typer.Option("--public", help="make it public; otherwise it is private")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="write the folder and its card, and upload nothing")
    ] = False,
    store: Root = "",
) -> None:
    """Write a policy as one transformers model: an adapter is merged into its base. That of a run has a model card."""
    from r3l.pipeline.export.policy import checked_name, export_run, push
    from r3l.training.export import export_policy as export

    title = checked_name(to_hub) if to_hub else ""
    goal = out or located(Path("data/export", (title or policy).rpartition("/")[2]))
    if Path(policy).is_dir():
        if to_hub or iteration is not None:
            raise ConfigError(
                f"{policy} is a folder, and a model card is made from a run: give the run's name, and --iteration"
            )
        export(policy, str(goal), str(base) if base else None)
    else:
        made = export_run(
            Store.open(store, reading=True), policy, goal, branch=branch, iteration=iteration, title=title
        )
        if to_hub and not dry_run:
            say(push(goal, title, f"Run {made.run}, iteration {made.iteration}, policy {made.digest}", public))
    say(str(goal))


def new(
    what: Annotated[str, typer.Argument(help="environment or method")],
    name: Annotated[str, typer.Argument(help="what it is called by: small letters, digits and underscores")],
    into: Annotated[Path, typer.Option(help="the folder that the package is put into")] = Path(),
) -> None:
    """Write a package with an environment or a method of your own to start from; nothing in r3l is changed."""
    folder = write_package(what, name, into)
    (module,) = (path.stem for path in folder.glob("r3l_*.py"))
    say(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    say(f"edit {folder / module}.py; then, in the environment that r3l is installed in:")
    say(f"  pip install -e {folder}")
    say(f"  {program()} iterate --run try --{what} {name}")


def warm_start(
    out: Annotated[
        Path | None,
        typer.Option(help="folder of the policy; empty: data/policies/embedded, or household-RECIPE-SEED there"),
    ] = None,
    environment: Annotated[str, typer.Option(help="alfworld or household")] = "alfworld",
    recipe: Annotated[
        str, typer.Option(help="recipe of the household: easy, in_hand, thought, standard, long or latent")
    ] = "easy",
    forgets: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="share of treatments that the demonstrations of recipe latent leave out"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            help="minutes in all (empty: 20); household: bounds the training, and the weights then depend on the time",
        ),
    ] = None,
    init: Annotated[Path | None, typer.Option(help="folder of an earlier policy to continue from")] = None,
) -> None:
    """Make a small starting policy: tokenizer, demonstrations in the world itself, supervised training, held-out
    figures."""

    def log_line(line: str) -> None:
        screen(stderr=True).print(line)

    if environment == "household":
        from r3l.warm_start.household.start import household_start

        named = "-".join(["household", recipe, *([] if forgets is None else [f"{forgets:g}"]), str(seed)])
        figures = household_start(
            out or home() / "data/policies" / named,
            recipe,
            seed,
            minutes,
            progress=log_line,
            init=init,
            forgets=forgets,
        )
    else:
        from r3l.warm_start.start import warm_start as make

        figures = make(
            out or home() / "data/policies/embedded", seed=seed, minutes=minutes or 20.0, init=init, progress=log_line
        )
    say(json.dumps(figures, indent=1))

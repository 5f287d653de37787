"""Commands that show what a store has; what a command alone needs is imported in it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from flows.cli.options import AsJson, Branch, Root, Run, RunOf, RunWord, the_run
from flows.cli.screen.console import say, say_json, screen
from r3l.errors import ConfigError
from r3l.store.stage import Store


def audit(
    word: Annotated[str, typer.Argument(metavar="[STORE]", help="the store; or --store")] = "",
    store: Root = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port on this machine")] = 4300,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="do not open the browser")] = False,
    host: Annotated[
        str, typer.Option(help="address to listen on; beyond loopback the key in R3L_AUDIT_KEY is required")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="a host name to accept in addition to localhost; may be repeated")
    ] = None,
) -> None:
    """Look at a store in the browser: iterations, groups, the four panes, reflections, the account, SQL. Read-only."""
    from r3l.audit.web.app import serve

    if word and store and word != store:
        raise ConfigError(f"two stores are named, {word!r} and --store {store!r}: leave one out")
    run_store = Store.open(word or store, reading=True)
    address = f"http://{host}:{port}/ shows {run_store.root}; Ctrl + C ends it"
    serve(run_store, port, not no_browser, host, name or [], begins=lambda: screen(stderr=True).print(address))


def report(
    word: RunWord = "",
    run: Run = "",
    out: Annotated[Path | None, typer.Option("--out", help="file to write; empty: RUN.html in this folder")] = None,
    branch: Branch = "",
    store: Root = "",
) -> None:
    """Write a run's report: one HTML file with plots, tables and ten telling attempts."""
    from flows.cli.screen.answers import warn_of_damage

    run = the_run(word, run)
    from r3l.audit.report import write_report

    name = f"{run}-{branch}" if branch else run
    opened = Store.open(store, reading=True)
    warn_of_damage(opened, [run])
    say(write_report(opened, run, out or Path(f"{name}.html"), branch))


def show(
    trajectory: Annotated[str, typer.Argument(help="id, e.g. iteration=3/task=17/base=2/retry=0")],
    run: Annotated[
        str, typer.Option("--run", metavar="NAME", help="name of the run; empty: the run that has this id")
    ] = "",
    branch: Branch = "",
    store: Root = "",
) -> None:
    """Show a trajectory: the conversation with its pivot, the reflection beside it, weights as shading."""
    from flows.cli.screen.answers import warn_of_damage
    from r3l.audit.lines import Line
    from r3l.audit.terminal import show as shown
    from r3l.store.genealogy import iteration_of

    opened = Store.open(store, reading=True)
    warn_of_damage(opened, [run] if run else opened.runs(), at=iteration_of(trajectory))
    screen().print(shown(opened, trajectory, Line(run, branch) if run else None))


def status(word: RunWord = "", run: Run = "", branch: Branch = "", store: Root = "") -> None:
    """Show where a run stands: the stages of its newest iteration, its figures, its account."""
    from flows.cli.screen.answers import warn_of_damage
    from r3l.audit.terminal import SHOWN
    from r3l.audit.terminal import status as shown

    run, opened = the_run(word, run), Store.open(store, reading=True)
    warn_of_damage(opened, [run], newest=SHOWN)
    screen().print(shown(opened, run, branch))


def track(
    word: RunWord = "",
    run: Run = "",
    to: Annotated[str, typer.Option("--to", help="tensorboard, mlflow, wandb or trackio")] = "tensorboard",
    where: Annotated[
        str, typer.Option("--where", help="log folder, tracking URI or project; empty: the tracker's own default")
    ] = "",
    branch: Branch = "",
    store: Root = "",
) -> None:
    """Write a run's stored metrics to a tracker. Run it again to add the new ones."""
    from flows.cli.screen.answers import warn_of_damage
    from r3l.pipeline.tracking.writers import WRITERS
    from r3l.pipeline.tracking.writers import track as write

    if to not in WRITERS:
        raise typer.BadParameter(f"{to!r}: choose one of {', '.join(WRITERS)}", param_hint="--to")
    run = the_run(word, run)
    run_store = Store.open(store, reading=True)
    warn_of_damage(run_store, [run])
    iterations = write(run_store, run, to, where, branch)
    say(f"{run}: {iterations} iterations written to {to}")


def runs(store: Root = "") -> None:
    """List the runs of the store."""
    from flows.cli.screen.answers import one_line, warn_of_left_out
    from r3l.audit.line_state import held_out_tiles, points
    from r3l.audit.overview import Overview

    rows, left_out = Overview(Store.open(store, reading=True)).rows()
    warn_of_left_out(left_out)
    table = Table("run", "branch", "method, policy, environment", header_style="bold")
    for name in ("iterations", "last commit (UTC)", "base success", "held-out success"):
        table.add_column(name, justify="right")
    table.add_column("newest iteration")
    for row in rows:
        newest = row["past"][-1] if row["past"] else {"base_success": None, "no_step": None}
        rate = "" if newest["base_success"] is None else f"{points(newest['base_success'])} %"
        tile = next(held_out_tiles(row["standing"].curves), None)
        table.add_row(
            *map(one_line, (row["run"], row["branch"], row["standing"].about())),
            *(str(row["iterations"]), row["last_commit"][:16].replace("T", " "), rate),
            one_line(f"{tile.value} {row['standing'].curves[0].benchmark}" if tile else ""),
            one_line(newest["no_step"] or ""),
        )
    screen().print(table)


def why(
    trajectory: Annotated[str, typer.Argument(help="id, e.g. iteration=3/task=17/base=2/retry=0")],
    run: RunOf = "",
    branch: Branch = "",
    turn: Annotated[int | None, typer.Option(help="also show this turn token by token")] = None,
    store: Root = "",
) -> None:
    """Explain why a trajectory was trained with its weights: row, credit, retry, reflection, base, task, and the step
    it went into."""
    from flows.cli.screen.answers import story, warn_of_damage
    from r3l.store.genealogy import iteration_of
    from r3l.store.genealogy import why as genealogy

    run_store = Store.open(store, reading=True)
    run = only_run(run_store, run)
    warn_of_damage(run_store, [run], at=iteration_of(trajectory))
    screen().print(story(str(genealogy(run_store, run, trajectory, branch, turn))), soft_wrap=True)


def only_run(store: Store, name: str) -> str:
    """Choose the run that is named, else the store's only one.

    Raises:
        ConfigError: none is named, and the store has none or several.
    """
    runs = [name] if name else store.runs()
    if len(runs) != 1:
        raise ConfigError(
            f"--run is needed: the runs of {store.root} are {', '.join(runs)}" if runs else f"{store.root} has no run"
        )
    return runs[0]


def bisect(
    a: Annotated[str, typer.Argument(help="a run, or RUN/BRANCH")],
    b: Annotated[str, typer.Argument(help="the other one")],
    store: Root = "",
    other_store: Annotated[str, typer.Option(help="store of the second one; empty: the same")] = "",
    again: Annotated[
        bool,
        typer.Option("--again", "--sample", help="make the stage again, too, where that takes an engine or a training"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find the first iteration, stage, row, turn and token in which two runs differ, and the cause; then make that one
    stage of both again from what it was made from, to see which of them follows."""
    from r3l.judge.alone import comes_again
    from r3l.judge.sampled_again import stage_again
    from r3l.stages import STAGES
    from r3l.store.differences.first_difference import Line, parting

    sides = ((a, store), (b, other_store or store))
    lines = [Line(Store.open(root, reading=True), *word.partition("/")[::2]) for word, root in sides]
    difference = parting(*lines)
    if difference:
        place = difference.iteration, difference.stage, difference.shard
        samples = again and STAGES[difference.stage].samples
        difference.more["made again"] = [
            stage_again(line.store, key) if samples else comes_again(line.store, key, train=again)
            for line, key in ((line, line.stages()[place].key) for line in lines)
        ]
    if as_json:
        say_json(None if difference is None else asdict(difference))
    else:
        say(str(difference) if difference else f"{a} and {b}: equal as far as both go")


def credit(
    run: Annotated[str, typer.Argument(help="name of the run")] = "demo",
    iteration: Annotated[int, typer.Option(min=0, help="a stored iteration")] = 0,
    branch: Branch = "",
    methods: Annotated[str, typer.Option(help="only these method presets, separated by commas; empty: all")] = "",
    store: Root = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object per method, with the mass of each turn")
    ] = False,
) -> None:
    """Show the credit that each method would have given to the rollouts of an iteration. Nothing is sampled, trained or
    stored."""
    from flows.cli.screen.answers import warn_of_left_out
    from flows.cli.screen.figures import credit_table
    from r3l.pipeline.counterfactual import counterfactuals
    from r3l.store.index.readable import left_out_of
    from r3l.store.query import require_runs

    run_store = Store.open(store, reading=True)
    require_runs(run_store, [run])
    left_out = left_out_of(run_store, [run])
    warn_of_left_out(left_out)
    names = [name for name in methods.split(",") if name]
    rows, others = counterfactuals(run_store, run, branch, iteration, names)
    if as_json:
        for one in rows:
            say_json({"method": one.preset, **asdict(one.mass)})
        if left_out:
            say_json({"left_out": left_out})
        return
    console = screen()
    console.print(credit_table(rows, f"{run}, iteration {iteration}"))
    console.print(
        "Mass: coefficient × weight × advantage, summed over tokens, as shares of a method's own total. Before the "
        "fault: of the mass on failed base trajectories, the part on turns before the one that the oracle names.",
        style="dim",
    )
    if others:
        console.print(f"Other rollouts are sampled by: {', '.join(others)}.", style="dim")


def presets(diff: Annotated[tuple[str, str] | None, typer.Option(help="two method presets to compare")] = None) -> None:
    """List the presets of policies, environments, methods and machines, and installed plug-ins; or compare two
    methods."""
    from r3l import plugins
    from r3l.config import preset_names

    if diff:
        show_differences(*diff)
        return
    for folder in ("policies", "environments", "methods", "machines"):
        say(f"{folder}: {', '.join(preset_names(folder))}")
    for section in plugins.GROUPS:
        for kind, claims in plugins.installed(section).items():
            say(f"{section} from outside: {kind} ({', '.join(map(plugins.package, claims))})")


def show_differences(a: str, b: str) -> None:
    from r3l.config.preset_diff import diff_presets

    table = Table("setting", a, b, header_style="bold")
    for name, left, right in diff_presets(a, b):
        table.add_row(name, *("—" if value is None else str(value) for value in (left, right)))
    screen().print(table)

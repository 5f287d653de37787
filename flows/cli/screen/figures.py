"""What an iteration or an evaluation came to, in the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from r3l.evaluation.score import Scores
from r3l.pipeline.counterfactual import Counterfactual
from r3l.pipeline.replay import Replayed
from r3l.pipeline.summary import Summary, figure_rows, headline, questions, sparkline, trends

TITLE = {"title_justify": "left", "title_style": "bold", "box": None, "padding": (0, 2, 0, 0)}


def result(console: Console, summary: Summary, ask: bool = True, verbose: bool = False) -> None:
    """Print the eight figures that are looked at first, or all, with the seconds of each stage; with `ask`, where it is
    stored and what to ask."""
    title = f"{summary['run']}, iteration {summary['iteration']}"
    if "evaluation" in summary:  # made after the summary, maybe on other terms than the one before
        before = summary["before"] | {"evaluation_success": None}
        summary = summary | {"evaluation_success": summary["evaluation"]["rate"], "before": before}
    both = Table.grid(padding=(0, 6, 0, 0))
    seconds_of_stage = [(stage, f"{seconds:.1f}") for stage, seconds in summary["stages"].items()]
    both.add_row(
        named_figures(title, figure_rows(summary) if verbose else headline(summary)),
        named_figures("seconds by the clock", seconds_of_stage),
    )
    console.print(both)
    if summary.get("failed_attempts") and not verbose:
        console.print(f"{summary['failed_attempts']} attempts failed: see the view events", style="yellow")
    if summary["no_step"]:
        console.print(summary["no_step"], style="bold yellow")
    for advice in summary.get("alarms", ()):
        console.print(f"alarm: {advice}", style="yellow", soft_wrap=True)
    if "evaluation" in summary:
        print_scores(console, summary["evaluation"])
    for tracker, reason in summary.get("trackers", {}).items():
        console.print(f"tracker {tracker}: {reason or 'has the figures'}", style="yellow" if reason else "")
    if not ask:
        return
    place = (f"{summary['store']}/{summary['run']}", "bold")
    console.print(Text.assemble("\nstored in ", place, ". Ask it:\n"), soft_wrap=True)
    for question in questions(summary):
        console.print(f"  {question}", soft_wrap=True, style="cyan")


def trend(console: Console, run: str, past: Sequence[dict[str, Any]]) -> None:
    """Print how the figures went over the iterations of a run."""
    first, last = past[0]["iteration"], past[-1]["iteration"]
    table = Table(title=f"{run}, iterations {first} to {last}", show_header=False, **TITLE)  # type: ignore[arg-type]
    table.add_column()
    table.add_column(style="green")
    table.add_column(justify="right")
    for name, bars, before, now in trends(past):
        table.add_row(name, bars, f"{before} → {now}" if len(bars) > 1 else now)
    console.print(table)


def curve(console: Console, past: Sequence[dict[str, Any]]) -> None:
    """Print held-out success over the iterations that were evaluated, once there are two."""
    points = [
        (row["iteration"], row["evaluation_success"]) for row in past if row.get("evaluation_success") is not None
    ]
    if len(points) > 1:
        texts = ", ".join(f"{share:.1%} after {iteration}" for iteration, share in points[-4:])
        console.print(f"held-out success {sparkline([share for _, share in points])}  {texts}", style="green")


def print_scores(console: Console, scores: Scores) -> None:
    """Print the score of an evaluation, by task type and in all."""
    title = f"{scores['run']}, policy of iteration {scores['iteration']} on {scores['posed']}: {scores['sample']}"
    table = Table(title=title, **TITLE)  # type: ignore[arg-type]
    for name in scores["table"][0]:
        table.add_column(name, justify="left" if name == "task type" else "right")
    for one in scores["table"]:
        table.add_row(*map(str, one.values()))
    console.print(table)
    if scores["broken"]:
        console.print(f"counted as 0, since the world or the engine failed: {', '.join(scores['broken'])}")


def named_figures(title: str, rows: Sequence[tuple[str, ...]]) -> Table:
    """Draw names and figures under a title, and how they changed since the iteration before where the rows say so."""
    table = Table(title=title, show_header=False, min_width=len(title), **TITLE)  # type: ignore[arg-type]
    for k in range(max(map(len, rows), default=2)):
        table.add_column(justify="right" if k else "left", style="dim" if k == 2 else "")
    for row in rows:
        table.add_row(*row)
    return table


def credit_table(rows: list[Counterfactual], title: str) -> Table:
    """Draw one line per method."""
    grid = Table(title=title, title_justify="left")
    grid.add_column("method", no_wrap=True)
    for name in ("rows", "likelier", "less likely", "on lessons", "before the fault", "after it"):
        grid.add_column(name, justify="right")
    for one in rows:
        mass, total = one.mass, one.mass.raised + one.mass.lowered
        before = mass.share_before
        shares: list[float | None] = [None, None, None]
        if total:
            shares = [mass.raised / total, mass.lowered / total, mass.lessons / total]
        shares += [before, None if before is None else 1 - before]
        cells = ["–" if share is None else f"{share:.0%}" for share in shares]
        grid.add_row(one.preset, str(mass.rows), *cells, style="bold" if one.own else None)
    return grid


def show_difference(console: Console, result: Replayed) -> None:
    """Print what differs between the branch and what it was replayed from, stage by stage."""
    from r3l.store.differences.difference import diff, difference_lines
    from r3l.store.stage import Store

    console.print(Text.assemble("replayed into branch ", (result["branch"], "bold")))
    difference = diff(
        Store.open(result["store"]), result["run"], result["iteration"], result["source_branch"], result["branch"]
    )
    for line in difference_lines(difference):
        console.print(line, soft_wrap=True)

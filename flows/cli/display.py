"""What a person sees in the terminal: the stages of the iteration as they fill, from the first second on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from flows.cli.eta import seconds_left, tokens_per_second
from r3l.exploration.progress import Progress
from r3l.pipeline.summary import questions, shown
from r3l.stages import STAGES, Stage

PLAIN_EVERY_S = 5.0
ENGINE = Stage(())  # it starts once, before the first stage that samples


class Display:
    """Draw a `Progress`. `phase` says what is being waited for."""

    def __init__(self, console: Console, title: str, progress: Progress) -> None:
        self.console, self.title, self.progress, self.phase, self.began = (
            console,
            title,
            progress,
            "starting",
            time.monotonic(),
        )
        self.planned: dict[str, float] = {}  # sampling stage -> attempts, in the order in which they run
        self._spinner = Spinner("dots")

    def __rich__(self) -> Panel:
        counts = self.progress.snapshot()
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for name in ("stage", ""):
            table.add_column(name)
        for name in ("attempts", "turns", "tokens", "mean reward"):
            table.add_column(name, justify="right")
        for stage in ("engine", *shown_stages(counts)):
            table.add_row(*row(stage, counts.get(stage, {}), counts.get("shards", {}).get("planned", 0)))
        spent = Text(
            " " + " · ".join([self.phase, f"{time.monotonic() - self.began:.0f} s", *self.eta_texts(counts)]),
            style="dim",
        )
        head = Table.grid()
        head.add_row(self._spinner, spent)
        return Panel(Group(table, head), title=Text(self.title), title_align="left", border_style="blue")

    def eta_texts(self, counts: dict[str, dict[str, float]]) -> list[str]:
        """While sampling goes on: tokens a second, and how long it takes yet, as far as they can be told."""
        now = time.monotonic()
        speed, left = tokens_per_second(counts, now), seconds_left(counts, self.planned, now)
        if not speed or left == 0:
            return []
        return [f"{speed:,.0f} tokens/s", *([f"sampling: about {left:.0f} s left"] if left else [])]

    def line(self) -> str:
        """Return the same in one plain line, for logs."""
        counts = self.progress.snapshot()
        parts = [
            f"{stage} {counts[stage].get('done', 0):.0f}/{counts[stage].get('planned', 0):.0f}"
            for stage in STAGES
            if counts.get(stage, {}).get("planned")
        ]
        return (
            f"[{time.monotonic() - self.began:4.0f} s] {self.phase}"
            + (": " if parts else "")
            + ", ".join(parts + self.eta_texts(counts))
        )


def shown_stages(counts: dict[str, dict[str, float]]) -> list[str]:
    """Return those that have begun and those that will; of an evaluation alone, no others."""
    begun = [STAGES[name] for name in STAGES if counts.get(name)]
    iterates = not begun or not all(stage.apart for stage in begun)
    return [name for name, stage in STAGES.items() if counts.get(name) or (iterates and not stage.optional)]


def row(stage: str, counts: dict[str, float], shards: float) -> list[Any]:
    """Return the cells of one stage, or of the engine. A stage without attempts of its own is done when all its shards
    are."""
    its = STAGES.get(stage, ENGINE)
    planned, done = counts.get("planned", 0), counts.get("done", 0)
    complete = counts.get("shards", 0) >= (shards or 1 if its.sharded else 1) or (its is ENGINE and bool(done))
    share = 1.0 if complete else (done / planned if planned else 0.0)
    bar = ProgressBar(total=1.0, completed=share, width=24, pulse=bool(counts) and not planned and not complete)
    attempts = f"{done:.0f}/{planned:.0f}" if its.samples and planned else ("done" if complete else "")
    turns, tokens = (f"{counts[name]:,.0f}" if counts.get(name) else "" for name in ("turns", "tokens"))
    reward = f"{counts['reward'] / done:.2f}" if done and "reward" in counts else ""
    return [stage, bar, attempts, turns, tokens, reward]


@contextmanager
def watching(display: Display, plain: bool) -> Iterator[None]:
    """Keep the display on the screen; in a pipe or a log, print a line every few seconds."""
    if not plain:
        with Live(
            display,
            console=display.console,
            refresh_per_second=6,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield
        return
    stop = threading.Event()

    def talk() -> None:
        while not stop.wait(PLAIN_EVERY_S):
            display.console.print(display.line(), soft_wrap=True)

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def result(console: Console, summary: dict[str, Any], ask: bool = True) -> None:
    """The table at the end: figures, seconds per stage and, with `ask`, where it is stored and what to ask."""
    both = Table.grid(padding=(0, 6, 0, 0))
    both.add_row(
        pairs(f"{summary['run']}, iteration {summary['iteration']}", shown(summary)),
        pairs("seconds, summed over shards", [(stage, f"{spent:.1f}") for stage, spent in summary["stages"].items()]),
    )
    console.print(both)
    if summary["no_step"]:
        console.print(summary["no_step"], style="bold yellow")
    if "evaluation" in summary:
        evaluated(console, summary["evaluation"])
    for tracker, reason in summary.get("trackers", {}).items():
        console.print(
            f"tracker {tracker}: {reason or 'has the figures'}",
            style="yellow" if reason else "",
        )
    if not ask:
        return
    place = (f"{summary['store']}/{summary['run']}", "bold")
    console.print(Text.assemble("\nstored in ", place, ". Ask it:\n"), soft_wrap=True)
    for question in questions(summary["run"], summary["branch"]):
        console.print(f"  {question}", soft_wrap=True, style="cyan")


def evaluated(console: Console, figures: dict[str, Any]) -> None:
    """The score of an evaluation, by task type and in all."""
    table = Table(
        title=f"{figures['run']}, policy of iteration {figures['iteration']} on {figures['posed']}: {figures['sample']}",
        title_justify="left",
        box=None,
        title_style="bold",
        padding=(0, 2, 0, 0),
    )
    for name in figures["table"][0]:
        table.add_column(name, justify="left" if name == "task type" else "right")
    for one in figures["table"]:
        table.add_row(*map(str, one.values()))
    console.print(table)
    if figures["broken"]:
        console.print(f"counted as 0, since the world or the engine failed: {', '.join(figures['broken'])}")


def pairs(title: str, rows: list[tuple[str, str]]) -> Table:
    """Return names and figures under a title."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        show_header=False,
        padding=(0, 2, 0, 0),
        min_width=len(title),
    )
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, value)
    return table

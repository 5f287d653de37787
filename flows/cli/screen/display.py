"""The live panel in the terminal: the stages of the iteration and their progress, from the first second."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from flows.cli.screen.eta import seconds_left, tokens_per_second
from r3l.exploration.progress import Progress, mean_reward
from r3l.stages import STAGES, Stage

FRAMES = 4  # per second
PLAIN_EVERY_S = 5.0
ENGINE = Stage(())  # it starts once, before the first stage that samples


class Display:
    """Draw a `Progress`. `phase` names what the run waits for."""

    def __init__(self, console: Console, title: str, progress: Progress) -> None:
        self.console, self.title, self.progress = console, title, progress
        self.phase, self.began = "starting", time.monotonic()
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
        status_line = Text(" " + " · ".join([self.now(), self.clock(), *self.eta_texts(counts)]), style="dim")
        head = Table.grid()
        head.add_row(self._spinner, status_line)
        return Panel(Group(table, head), title=Text(self.title), title_align="left", border_style="blue")

    def now(self) -> str:
        """Say what is being waited for: what the last stage that says so is doing, or else the phase."""
        updating = self.progress.doing("updates")
        return f"the update {updating}" if updating and not self.progress.ended("updates") else self.phase

    def clock(self) -> str:
        """Write the time since the display began, as minutes and seconds."""
        return clock(time.monotonic() - self.began)

    def eta_texts(self, counts: dict[str, dict[str, float]]) -> list[str]:
        """Write the tokens per second and the remaining sampling time, as far as they are known."""
        now = time.monotonic()
        speed, left = tokens_per_second(counts, now), seconds_left(counts, self.planned, now)
        if not speed or left == 0:
            return []
        return [f"{speed:,.0f} tokens/s", *([f"sampling: about {clock(left)} left"] if left else [])]

    def line(self) -> str:
        """Write the same in one plain line, for logs: without what changes although nothing happens."""
        counts = self.progress.snapshot()
        parts = [
            f"{stage} {counts[stage].get('done', 0):.0f}/{counts[stage].get('planned', 0):.0f}"
            for stage in STAGES
            if counts.get(stage, {}).get("planned")
        ]
        return self.now() + (": " if parts else "") + ", ".join(parts)


def clock(seconds: float) -> str:
    """Write a time like 1:05 for 65 seconds, 1:00:05 for an hour more."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def shown_stages(counts: dict[str, dict[str, float]]) -> list[str]:
    """List the stages that have begun and those that will; of an evaluation alone, no others."""
    stages = [STAGES[name] for name in STAGES if counts.get(name)]
    iterates = not stages or not all(stage.apart for stage in stages)
    return [name for name, stage in STAGES.items() if counts.get(name) or (iterates and not stage.optional)]


def row(stage: str, counts: dict[str, float], shards: float) -> list[Any]:
    """Write the cells of one stage, or of the engine. A stage without attempts of its own is done when all its shards
    are."""
    its = STAGES.get(stage, ENGINE)
    attempts_planned, attempts_done = counts.get("planned", 0), counts.get("done", 0)
    complete = counts.get("shards", 0) >= (shards or 1 if its.sharded else 1) or (its is ENGINE and bool(attempts_done))
    share = attempts_done / attempts_planned if attempts_planned else 0.0
    if complete:
        share = 1.0
    bar = ProgressBar(
        total=1.0, completed=share, width=24, pulse=bool(counts) and not attempts_planned and not complete
    )
    attempts = "done" if complete else ""
    if attempts_planned and (its.samples or its.trains):  # of an update: micro-batches
        attempts = f"{attempts_done:.0f}/{attempts_planned:.0f}"
    turns, tokens = (f"{counts[name]:,.0f}" if counts.get(name) else "" for name in ("turns", "tokens"))
    return [stage, bar, attempts, turns, tokens, mean_reward(counts)]


@contextmanager
def watching(display: Display, plain: bool) -> Iterator[None]:
    """Keep the display on the screen; in a pipe or a log, print a line when something has changed."""
    if not plain:
        with Live(
            display,
            console=display.console,
            refresh_per_second=FRAMES,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=print_changes, args=(display, stop.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def print_changes(display: Display, over: Callable[[float], bool]) -> None:
    """Print the display's line where it has changed, until `over`, which waits so many seconds, says so."""
    before = ""
    while not over(PLAIN_EVERY_S):
        if (line := display.line()) != before:
            display.console.print(f"[{display.clock()}] {line}", soft_wrap=True)
            before = line

"""The summary of an iteration: the figures of the `iterations` view, and questions to ask next."""

import math
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict, cast

from r3l.evaluation.score import Scores
from r3l.intervals import difference
from r3l.stages import STAGES
from r3l.store.catalog import connect
from r3l.store.figures import standing_alarms
from r3l.store.metrics import METRICS
from r3l.store.query import query
from r3l.store.stage import Store
from r3l.system.pasted import at_store, program

# What most people look at first, with its change since the iteration before.
HEADLINE = (
    "base_success",
    "evaluation_success",
    "retry_improvement",
    "parse_rate",
    "mixed_groups",
    "trained_tokens",
    "loss",
    "kl_start",
)
ROW = "SELECT * FROM lines.iterations WHERE run = ? AND branch = ? AND iteration"
# Shards run side by side, so a stage takes from the start of its first shard to the end of its last one.
SPENT = """
SELECT stage, max(epoch(committed_at::TIMESTAMPTZ)) - min(epoch(committed_at::TIMESTAMPTZ) - seconds)
FROM stages WHERE run = ? AND branch = ? AND iteration = ? GROUP BY stage
"""
OF_RETRIES = [
    "SELECT run, outcome, count(*) AS retries, avg(gain) AS gain FROM pivots GROUP BY ALL",
    "SELECT run, pivot_turn, count(*) AS retries, avg((gain > 0)::INT) AS improved FROM pivots GROUP BY ALL "
    "ORDER BY ALL",
    "SELECT run, iteration, base_success, retry_improvement, mixed_groups, loss FROM iterations ORDER BY ALL",
]
OF_BASES = [  # of a method, or an iteration, without retries
    "SELECT run, task_type, count(*) AS attempts, avg(reward) AS reward FROM base GROUP BY ALL ORDER BY ALL",
    "SELECT run, iteration, mixed, count(*) AS groups, avg(reward_mean) AS reward FROM groups GROUP BY ALL "
    "ORDER BY ALL",
    "SELECT run, iteration, base_success, mixed_groups, trained_tokens, loss FROM iterations ORDER BY ALL",
]


class Summary(TypedDict):
    """An iteration's row of the view `iterations`: a key per metric of `METRICS` too, and what is known beside."""

    run: str
    branch: str
    iteration: int
    no_step: str | None
    policy: NotRequired[str | None]
    failed_attempts: NotRequired[int]
    evaluation_success: NotRequired[float | None]
    evaluated: NotRequired[int | None]
    stages: dict[str, float]
    before: dict[str, Any]
    store: NotRequired[str]
    stages_committed: NotRequired[int]
    alarms: NotRequired[list[str]]
    trackers: NotRequired[dict[str, str]]
    evaluation: NotRequired[Scores]


def questions(summary: Summary) -> list[str]:
    """List questions that the iteration can answer, as commands to paste."""
    line = f"--run {summary['run']}" + (f" --branch {summary['branch']}" if summary["branch"] else "")
    line += at_store(summary["store"]) if "store" in summary else ""
    sql_questions = OF_BASES if summary.get("retry_improvement") is None else OF_RETRIES
    return [f'{program()} sql "{question}" {line}' for question in sql_questions]


def summarise(store: Store, run: str, branch: str, iteration: int) -> Summary:
    """Read the row of the `iterations` view; `stages`: stage -> seconds, from the start of its first shard to the end
    of its last one; `before`: column -> figure of the iteration before, empty for the first; and `alarms`, in words."""
    with connect(store, [run], question=ROW) as connection:
        # by their numbers: DuckDB then reads of a long run's files the rows of these two iterations alone
        rows = query(connection, f"{ROW} BETWEEN ? AND ?", [run, branch, iteration - 1, iteration]).to_pylist()
        seconds = connection.execute(SPENT, [run, branch, iteration]).fetchall()
    of = {row["iteration"]: row for row in rows}
    before = of.get(iteration - 1)
    figures = of.get(iteration) or {"run": run, "branch": branch, "iteration": iteration, "no_step": None}
    seconds_of = {stage: float(total or 0) for stage, total in seconds}
    stages = {stage: seconds_of[stage] for stage in STAGES if stage in seconds_of}
    summary = figures | {
        "stages": stages,
        "before": {column: before[column] for column in (*HEADLINE, "evaluated")} if before else {},
        "alarms": standing_alarms(store, run, branch),
    }
    return cast(Summary, summary)


def history(store: Store, run: str, branch: str) -> list[dict[str, Any]]:
    """Read the `iterations` view of a run, oldest first."""
    with connect(store, [run], question=ROW) as connection:
        rows = query(
            connection, "SELECT * FROM lines.iterations WHERE run = ? AND branch = ? ORDER BY iteration", [run, branch]
        )
    return list(rows.to_pylist())


def figure_rows(summary: Summary) -> list[tuple[str, str]]:
    """List (name, figure) pairs, those that do not apply as a dash; an evaluation's only where there is one."""
    return [
        (metric.name, figure(summary.get(metric.column), metric.format))
        for metric in METRICS
        if metric.shown and (metric.source != "evaluations" or summary.get("evaluated"))
    ]


def figure(value: object, pattern: str) -> str:
    """Write a number in its format; a dash where there is none."""
    if not isinstance(value, int | float) or math.isnan(value):
        return "–"
    return pattern.format(int(value) if pattern.endswith("d}") else value)


BARS = "▁▂▃▄▅▆▇█"
TREND = 40  # newest iterations of a sparkline
KNOWN = {metric.column: metric for metric in METRICS}


def headline(summary: Summary) -> list[tuple[str, str, str]]:
    """List (name, figure, change since the iteration before) of the figures that are looked at first."""
    before, rows = summary.get("before", {}), []
    success, tasks = summary.get("evaluation_success"), summary.get("evaluated")
    for column in HEADLINE:
        metric, value = KNOWN[column], summary.get(column)
        change_text = change(value, before.get(column), metric.format)
        if change_text and column == "evaluation_success" and success is not None and tasks:
            # of a sample of tasks: without an interval it says nothing
            low, high = difference((success, tasks), (before[column], before["evaluated"]))
            change_text += f" [{100 * low:+.0f} to {100 * high:+.0f}]"
        rows.append((metric.name, figure(value, metric.format), change_text))
    return rows


def change(now: object, before: object, pattern: str) -> str:
    """Write the difference with its sign, in the format of the figure; of percentages in points. Empty where one is
    missing."""
    if not isinstance(now, int | float) or not isinstance(before, int | float) or math.isnan(now - before):
        return ""
    if pattern.endswith("%}"):
        return f"{100 * (now - before):+.1f} points"
    return f"{'-' if now < before else '+'}{figure(abs(now - before), pattern)}"


def in_short(summary: Summary) -> str:
    """Write a line like ``base 54 % · held-out 31 % · loss 0.031``: a card of Prefect's UI has room for 35 characters
    or so."""
    parts = (
        ("base", "base_success", "{:.0%}"),
        ("held-out", "evaluation_success", "{:.0%}"),
        ("loss", "loss", "{:.3f}"),
    )
    figures = [(name, figure(summary.get(column), pattern)) for name, column, pattern in parts]
    return " · ".join(f"{name} {text.replace('%', ' %')}" for name, text in figures if text != "–")


def sparkline(values: Sequence[float | None]) -> str:
    """Draw one bar character per value, scaled from the least to the greatest; a space where there is no value."""
    numbers = [value for value in values if value is not None and not math.isnan(value)]
    if not numbers:
        return ""
    low, span = min(numbers), (max(numbers) - min(numbers)) or 1.0
    return "".join(
        " " if value is None or math.isnan(value) else BARS[round((value - low) / span * (len(BARS) - 1))]
        for value in values
    )


def trends(past: Sequence[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """List (name, sparkline, first figure, newest figure) of the figures that are looked at first, over the newest
    iterations; without those that no iteration has."""
    rows = []
    for metric in (KNOWN[column] for column in HEADLINE):
        values = [row.get(metric.column) for row in past][-TREND:]
        texts = [text for text in (figure(value, metric.format) for value in values) if text != "–"]
        if texts:
            rows.append((metric.name, sparkline(values), texts[0], texts[-1]))
    return rows

"""The figures of an iteration that are looked at first: how they changed, how they went over a run, and in one line."""

import math
from collections.abc import Sequence
from typing import Any

from r3l.intervals import difference
from r3l.pipeline.summary import HEADLINE, Summary, figure
from r3l.store.metrics import METRICS

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

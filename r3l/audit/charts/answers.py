"""A chart of an answer: one numeric column over another, with one line per value of a third."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from markupsafe import Markup

from r3l.audit.charts.charts import COLOURS, Axes, Series, line_chart

ALONG = ("iteration", "step", "turn", "pivot_turn", "place")  # what is likely to be meant as x


@dataclass(frozen=True, slots=True)
class AnswerChart:
    """What is drawn, and the columns that can be chosen instead."""

    x: str
    y: str
    by: str
    numbers: list[str]
    names: list[str]
    svg: Markup
    legend: list[str]
    left_out: int
    means: bool  # several rows stand at one place of a line: their mean is drawn


def answer_chart(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numeric: Sequence[bool],
    x: str = "",
    y: str = "",
    by: str = "",
) -> AnswerChart | None:
    """Draw the chart that is asked for, or else a likely one; None where the answer has fewer than two number
    columns."""
    numbers = [name for name, number in zip(columns, numeric, strict=True) if number]
    if len(numbers) < 2 or not rows:
        return None
    x = x if x in numbers else next((name for name in ALONG if name in numbers), numbers[0])
    y = y if y in numbers else next(name for name in numbers if name != x)
    names = [name for name in columns if name not in numbers]
    by = by if by in names else "" if by == "-" else likely(columns, rows, names)
    lines: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    at = {name: columns.index(name) for name in columns}
    for row in rows:
        if row[at[x]] is not None and row[at[y]] is not None:
            lines[str(row[at[by]]) if by else ""][float(row[at[x]])].append(float(row[at[y]]))
    series = [
        Series(name[:40], [(place, fmean(values)) for place, values in sorted(points.items())])
        for name, points in list(lines.items())[:COLOURS]
    ]
    means = any(len(values) > 1 for points in lines.values() for values in points.values())
    svg = line_chart(series, Axes(y, x), f"{y} by {x}")
    left_out = max(0, len(lines) - COLOURS)
    return AnswerChart(x, y, by, numbers, names, svg, [one.name for one in series if one.name], left_out, means)


def likely(columns: Sequence[str], rows: Sequence[Sequence[Any]], names: Sequence[str]) -> str:
    """Find the first column of a few values, each in several rows."""
    for name in names:
        values = {str(row[columns.index(name)]) for row in rows}
        if 1 < len(values) <= COLOURS and len(values) < len(rows):
            return name
    return ""

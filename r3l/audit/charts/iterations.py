"""The charts of the iterations of one line, or of several lines in one chart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from r3l.audit.charts import charts
from r3l.audit.figures import absent
from r3l.audit.held_out import Curve
from r3l.audit.lines import Line, line_url
from r3l.audit.reader import Row
from r3l.store.metrics import FOLLOWED, Metric


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart of iterations shows: the unit of y, columns of the view and the name of each line. `share`: the axis
    is 0 to 100 %."""

    title: str
    meaning: str
    unit: str
    lines: dict[str, str]
    share: bool = False

    @property
    def axes(self) -> charts.Axes:
        return charts.Axes(self.unit, share=self.share)


# Title -> (what it shows, unit of y). Which lines a chart has, the metrics say (r3l/store/metrics.py).
SAID = {
    "Reward": ("mean reward per attempt", "reward"),
    "Success": ("share of attempts that solve their task", "share of attempts"),
    "Improvement rate": ("share of retries with a higher reward than their base", "share of retries"),
    "Gain": ("mean of the retry's reward minus its base's", "reward"),
    "Pivot": ("mean number of turns that a retry keeps, and of a base", "turns"),
    "Mixed groups": ("share of groups whose rewards differ and so give a gradient", "share of groups"),
    "Reflections that parse": ("share of reflections with a valid report", "share of reflections"),
    "Entropy": ("of the policy at trained tokens", "nats per token"),
    "KL to the starting policy": ("k3 estimate on trained tokens", "nats per token"),
    "Gradient norm": ("before clipping", "norm"),
    "Loss": ("total and its terms", "loss"),
    "Trained tokens": ("tokens with weight", "tokens"),
    "Seconds": ("wall time of the update, and of all stages summed over shards", "seconds"),
}


def charts_of(metrics: Sequence[Metric]) -> tuple[Chart, ...]:
    """List the charts above, then one for each metric that names none."""
    of_title: dict[str, list[Metric]] = {title: [] for title in SAID}
    for metric in metrics:
        if metric.chart is not None:
            of_title.setdefault(metric.chart or metric.name.capitalize(), []).append(metric)
    return tuple(
        Chart(
            title,
            *SAID.get(title, (lines[0].name, lines[0].unit)),
            lines={one.column: one.line for one in lines},
            share=lines[0].format.endswith("%}"),
        )
        for title, lines in of_title.items()
        if lines
    )


CHARTS = charts_of(FOLLOWED)


def iteration_charts(rows: Sequence[Row], curves: Sequence[Curve], line: Line | None = None) -> list[dict[str, Any]]:
    """Draw the charts of one line, held-out success first. Points link to the iterations of `line`; a report has
    none."""
    link = partial(iteration_url, line) if line else None
    curves_of = [(curve.benchmark, [curve]) for curve in curves]
    return [
        *(held_out_chart(benchmark, [("", curve) for curve in scores], link) for benchmark, scores in curves_of),
        *(alone(chart, rows, link=link) for chart in with_values(CHARTS, rows)),
    ]


def with_values(some: Sequence[Chart], rows: Sequence[Row]) -> list[Chart]:
    """Pick the charts of which a column has a value in some iteration: the others would be empty frames."""
    return [chart for chart in some if any(not absent(row[column]) for column in chart.lines for row in rows)]


def iteration_url(line: Line, iteration: float) -> str:
    return line_url(line, at=f"{iteration:g}") + "#step"


def compared_charts(
    rows_by_line: Sequence[tuple[str, Sequence[Row]]], curves_by_line: Sequence[tuple[str, Sequence[Curve]]]
) -> list[dict[str, Any]]:
    """Draw the charts of several lines: held-out success per benchmark, and each figure that one of them has. Each line
    has the same colour in every chart, whether or not it has values there."""
    benchmarks = dict.fromkeys(curve.benchmark for _, curves in curves_by_line for curve in curves)
    pictures = [
        held_out_chart(
            benchmark,
            [
                (name, next((curve for curve in curves if curve.benchmark == benchmark), Curve(benchmark, [])))
                for name, curves in curves_by_line
            ],
        )
        for benchmark in benchmarks
    ]
    for chart in CHARTS:
        for column, name in chart.lines.items():
            if not column.startswith("evaluation") and any(
                not absent(row[column]) for _, rows in rows_by_line for row in rows
            ):
                pictures.append(compare_lines(chart, column, name, rows_by_line))
    return pictures


def held_out_chart(
    benchmark: str, curves: Sequence[tuple[str, Curve]], link: Callable[[float], str] | None = None
) -> dict[str, Any]:
    """Draw the success on held-out tasks with 95 % intervals; -1 is the starting policy."""
    series = [
        charts.Series(
            name,
            [(score.iteration, score.rate) for score in curve.scores],
            [(score.iteration, *score.interval) for score in curve.scores],
        )
        for name, curve in curves
    ]
    chart = Chart(
        "Held-out success", f"{benchmark}, 95 % intervals; −1: the starting policy", "share of tasks", {}, True
    )
    return draw_chart(chart, series, True, link)


def alone(
    chart: Chart, rows: Sequence[Row], hover: bool = True, link: Callable[[float], str] | None = None
) -> dict[str, Any]:
    """Draw all columns of the chart that have a value."""
    series = [
        charts.Series(name, [(row["iteration"], row[column]) for row in rows]) for column, name in chart.lines.items()
    ]
    return draw_chart(chart, [one for one in series if any(not absent(y) for _, y in one.points)], hover, link)


def compare_lines(
    chart: Chart, column: str, name: str, rows_by_line: Sequence[tuple[str, Sequence[Row]]]
) -> dict[str, Any]:
    """Draw one column of the chart for each line."""
    series = [charts.Series(line, [(row["iteration"], row[column]) for row in rows]) for line, rows in rows_by_line]
    return draw_chart(chart, series) | {"title": f"{chart.title}: {name}" if name else chart.title}


def draw_chart(
    chart: Chart,
    series: Sequence[charts.Series],
    hover: bool = True,
    link: Callable[[float], str] | None = None,
) -> dict[str, Any]:
    svg = charts.line_chart(series, chart.axes, chart.title, hover, link)
    legend = [one.name for one in series if one.name]
    return {"title": chart.title, "meaning": chart.meaning, "svg": svg, "legend": legend}

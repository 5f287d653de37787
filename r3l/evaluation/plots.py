"""The plots of an experiment as SVG files that stand alone: a line for every arm, the mean over its seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from r3l.audit.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Scale, Series, frame, nice_ticks, path
from r3l.config.experiment import Cell
from r3l.evaluation.compare import mean
from r3l.evaluation.results import Results, spent

COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#0a7ea4", "#57606a", "#e16f24", "#4d2d00", "#116329",
           "#a40e26")
STYLE = """text{font:10px system-ui,sans-serif;fill:#57606a}.y{text-anchor:end}.x,.title{text-anchor:middle}
.title{font-size:11px;fill:#24292f}.grid{stroke:#d0d7de}.axis{stroke:#57606a}.line{fill:none;stroke-width:1.6;stroke-linejoin:round}"""
METRICS = {
    "base_reward": "mean reward of the bases", "entropy": "entropy (nats a token)", "grad_norm": "gradient norm",
    "kl_start": "KL to the starting policy", "loss": "loss", "clip_fraction": "clip fraction", "pivot_mean": "pivot (turn)",
    "pivot_fraction": "pivot / turns", "retry_improvement": "retry improvement rate", "reward_gain": "reward gain of retries",
    "mixed": "groups with mixed rewards", "parse_rate": "reflections that parse"}
ROW = 14  # pixels of a legend line
SHORT = 24  # names of so many letters stand two in a legend line
Point = tuple[float, float | None]


def plotted_rate(results: Results) -> float | None:
    """The first learning rate; None where each model has its own."""
    return results.experiment.sizes[results.size].learning_rates()[0]


def plots(results: Results) -> Iterator[tuple[str, str]]:
    """(name, SVG) of the runs at the first rate: success against steps, turns and generated tokens, metrics against steps and tokens."""
    cells = [cell for cell in results.cells if cell.rate == plotted_rate(results)]
    if not cells or results.experiment.sizes[results.size].iterations < 2:
        return  # a single point is no curve
    for against in ("steps", "turns", "tokens"):
        yield f"success-by-{against}", svg("test success rate", against, lines(cells, partial(success, results, against)))
    for metric, title in METRICS.items():
        for against in ("steps", "tokens"):
            drawn = lines(cells, partial(measured, results, metric, against))
            if any(y is not None for one in drawn for _, y in one.points):
                yield f"{metric}-by-{against}", svg(title, against, drawn)


def success(results: Results, against: str, cell: Cell) -> list[Point]:
    used = spent(results.metrics[cell.config.run])
    return [(place(used[at], at, against), rate) for at, rate in sorted(results.curves[cell.config.run].items())]


def measured(results: Results, metric: str, against: str, cell: Cell) -> list[Point]:
    rows = results.metrics[cell.config.run]
    used = spent(rows)
    return [(place(used[row["iteration"]], row["iteration"], against), known(row[metric])) for row in rows]


def place(used: Any, iteration: int, against: str) -> float:
    return iteration + 1 if against == "steps" else getattr(used, against)


def known(value: float | None) -> float | None:
    return None if value is None or value != value else float(value)


def lines(cells: list[Cell], points: Callable[[Cell], list[Point]]) -> list[Series]:
    """An arm's k-th point is the mean of its runs' k-th points, in x and in y."""
    by_arm: dict[str, list[list[Point]]] = defaultdict(list)
    for cell in cells:
        by_arm[cell.arm.name].append(points(cell))
    return [Series(arm, [average(ranks) for ranks in zip(*runs, strict=False)]) for arm, runs in by_arm.items()]


def average(points: tuple[Point, ...]) -> Point:
    values = [y for _, y in points if y is not None]
    return mean([x for x, _ in points]), mean(values) if values else None


def style(number: int) -> str:
    """A line's colour; those beyond the colours there are take them again, dashed, with hollow dots."""
    colour, again = COLOURS[number % len(COLOURS)], number >= len(COLOURS)
    dashed, dot = (";stroke-dasharray:5 3", f"fill:#fff;stroke:{colour}") if again else ("", f"fill:{colour}")
    return f".line.c{number}{{stroke:{colour}{dashed}}}.dot.c{number}{{{dot}}}"


def svg(title: str, against: str, series: list[Series]) -> str:
    values = [y for one in series for _, y in one.points if y is not None] or [0.0]
    xs = sorted({x for one in series for x, _ in one.points})
    ticks = nice_ticks(min(values), max(values), zero=True)
    scale_x = Scale(xs[0], xs[-1] if len(xs) > 1 else xs[0] + 1, LEFT + 6, WIDTH - RIGHT - 6)
    scale_y = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP + 8)
    parts = [frame(ticks, xs, scale_x, scale_y, False), f'<text class="title" x="{WIDTH / 2}" y="10">{title}, by {against}</text>']
    parts += [path(one.points, scale_x, scale_y, number) for number, one in enumerate(series)]
    columns = 2 if all(len(one.name) <= SHORT for one in series) else 1
    for number, one in enumerate(series):
        top = HEIGHT + ROW * (number // columns)
        left = LEFT + (number % columns) * (WIDTH - LEFT) / 2
        parts.append(f'<rect class="dot c{number}" x="{left}" y="{top}" width="9" height="9"/>'
                     f'<text x="{left + 13}" y="{top + 8.5}">{one.name.replace("&", "&amp;").replace("<", "&lt;")}</text>')
    height = HEIGHT + ROW * -(-len(series) // columns) + 4
    colours = "".join(style(number) for number in range(len(series)))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{2 * WIDTH}"><style>{STYLE}{colours}</style>'
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n')

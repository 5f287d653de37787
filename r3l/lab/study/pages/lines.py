"""What an experiment's pictures show: a line for every arm, the mean over its starting policies, with the standard
error over them."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from r3l.lab.study.compare import area, mean, standard_error
from r3l.lab.study.experiment import Cell
from r3l.lab.study.phase_map import on_dial, place_of
from r3l.lab.study.results import Results, sum_spending

MOST = 7  # lines of a picture
HELD_OUT = "success on held-out tasks"
Point = tuple[float, float | None]


class Line(NamedTuple):
    """An arm's points: where, how high, and the standard error over starting policies (NaN: one policy)."""

    arm: str
    x: list[float]
    y: list[float]
    error: list[float]


class Panel(NamedTuple):
    title: str  # empty: the picture's only one
    lines: list[Line]


class Picture(NamedTuple):
    name: str
    title: str
    x_title: str
    y_title: str
    panels: list[Panel]  # one under the other
    ours: str  # the arm that the experiment is about: the thick line


def plotted_rate(results: Results) -> float | None:
    """Choose the first learning rate that has runs, else the first of all; None where each model has its own."""
    rates = results.experiment.sizes[results.size].learning_rates()
    return next((rate for rate in rates if any(cell.rate == rate for cell in results.cells)), rates[0])


def drawn_thick(results: Results) -> str:
    """Name the arm that the experiment is about, of those with runs at the plotted rate."""
    rate = plotted_rate(results)
    return results.experiment.ours({cell.arm.name for cell in results.cells if cell.rate == rate})


def pictures_of(results: Results) -> list[Picture]:
    """Gather the success by iterations and by turns, and the share of groups that can teach, of the runs at the plotted
    rate. Where the starting policies are on the dial, the map takes the third one's place."""
    parts = {title: cells_drawn(results, cells) for title, cells in by_point(results).items()}
    if not any(parts.values()) or results.experiment.sizes[results.size].iterations < 2:
        return []  # a single point is no curve
    episodes = results.test_episodes
    kinds = [
        ("success-by-iterations", "iterations", HELD_OUT, partial(success, results, "iterations"), episodes),
        ("success-by-turns", "turns sampled", HELD_OUT, partial(success, results, "turns"), episodes),
        ("mixed-by-iterations", "iterations", "share of groups with mixed rewards", partial(mixed_points, results), 0),
    ]
    title, ours = results.experiment.title, drawn_thick(results)
    if on_dial(results.experiment.sizes[results.size].policies):
        del kinds[2]
    return [
        Picture(
            name,
            title,
            x_title,
            y_title,
            [Panel(part, lines(cells, points, floor)) for part, cells in parts.items() if cells],
            ours,
        )
        for name, x_title, y_title, points, floor in kinds
    ]


def by_point(results: Results) -> dict[str, list[Cell]]:
    """Group the runs at the plotted rate; where all arms are held against one, those of each point of the dial."""
    parts: dict[str, list[Cell]] = defaultdict(list)
    for cell in results.cells:
        if cell.rate == plotted_rate(results):
            place = place_of(cell.config.policy.path) if results.experiment.against else None
            parts[f"F = {place[0]:g}" if place else ""].append(cell)
    return parts


def cells_drawn(results: Results, cells: Sequence[Cell]) -> list[Cell]:
    """Choose the cells of `MOST` arms: ours, the one that all are held against if there is one, then those with the
    largest mean success over training. An arm that was run with some of ours' seeds only is left out: its mean is over
    other policies. Where all are held against one, the seeds are those that it was run with."""
    if rival := results.experiment.against:
        common = {cell.seed for cell in cells if cell.arm.name == rival}
        cells = [cell for cell in cells if cell.seed in common]
    heights: dict[str, list[float]] = defaultdict(list)
    seeds: dict[str, set[int]] = defaultdict(set)
    for cell in cells:
        heights[cell.arm.name].append(area(results.curves[cell.config.run]))
        seeds[cell.arm.name].add(cell.seed)
    ours = drawn_thick(results)
    whole = [arm for arm in heights if not seeds[arm] < seeds[ours]]
    arms = sorted(whole, key=lambda arm: (arm not in (ours, rival), -mean(heights[arm])))[:MOST]
    return [cell for cell in cells if cell.arm.name in arms]


def success(results: Results, against: str, cell: Cell) -> list[Point]:
    spending = sum_spending(results.metrics[cell.config.run])
    return [(place(spending[at], at, against), rate) for at, rate in sorted(results.curves[cell.config.run].items())]


def mixed_points(results: Results, cell: Cell) -> list[Point]:
    rows = results.metrics[cell.config.run]
    return [(row["iteration"] + 1, None if row["mixed"] is None else float(row["mixed"])) for row in rows]


def place(spending: Any, iteration: int, against: str) -> float:
    return iteration + 1 if against == "iterations" else getattr(spending, against)


def lines(cells: Sequence[Cell], points: Callable[[Cell], list[Point]], episodes: int = 0) -> list[Line]:
    """Draw each arm's line: its k-th point is the mean over starting policies of the mean over each one's runs, in x
    and in y.

    `episodes`: of each point of a run, where it is a success rate; the error is then never below the binomial one.
    """
    by_arm: dict[str, dict[str, list[list[Point]]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        by_arm[cell.arm.name][cell.config.policy.path].append(points(cell))
    return [
        line(arm, [average_runs(runs) for runs in by_policy.values()], episodes * sum(map(len, by_policy.values())))
        for arm, by_policy in by_arm.items()
    ]


def average_runs(runs: Sequence[Sequence[Point]]) -> list[Point]:
    return [average(ranks) for ranks in zip(*runs, strict=False)]


def average(points: Sequence[Point]) -> Point:
    values = [y for _, y in points if y is not None]
    return mean([x for x, _ in points]), mean(values) if values else None


def line(arm: str, policies: Sequence[Sequence[Point]], episodes: int = 0) -> Line:
    curve = Line(arm, [], [], [])
    for ranks in zip(*policies, strict=False):
        x, y = average(ranks)
        if y is not None:
            curve.x.append(x)
            curve.y.append(y)
            spread = standard_error([value for _, value in ranks if value is not None])
            floor = math.sqrt(y * (1 - y) / episodes) if episodes else 0.0
            curve.error.append(spread if math.isnan(spread) else max(spread, floor))
    return curve

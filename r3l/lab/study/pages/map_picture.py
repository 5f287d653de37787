"""The picture of the map: a row for each learning rate, the gap over GRPO against p and against GRPO's share of mixed
groups.
"""

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from r3l.lab.study.pages.pictures import OURS, RIVALS, STYLE, TITLE, svg
from r3l.lab.study.phase_map import Place

PANELS = (("p", "share of unguided attempts that win (p)"), ("mixed", "GRPO's share of groups with mixed rewards"))

JOINED = 3  # policies at every point
TITLE_WIDTH = 110  # characters of a line; longer ones run over the edges


def draw_map(
    places_of_rate: Mapping[float | None, Sequence[Place]],
    rival: str,
    title: str,
    crossing: Mapping[str, tuple[float, float]],
) -> str:
    """Draw the map as SVG: the mean gap with its 95 % band, each policy a dot, the predicted `crossing` shaded. Points
    are joined from `JOINED` policies on: a line through single runs would look like a curve."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    counts = sorted({one.over.policies for places in places_of_rate.values() for one in places})
    with matplotlib.rc_context(STYLE):
        figure, grid = pyplot.subplots(
            len(places_of_rate),
            2,
            figsize=(8.4, 3.3 * len(places_of_rate) + 0.3),
            layout="constrained",
            sharex="col",
            sharey=True,
            squeeze=False,
        )
        for row, (rate, places) in zip(grid, places_of_rate.items(), strict=True):
            for axes, (name, _) in zip(row, PANELS, strict=True):
                draw_panel(axes, places, name, crossing.get(name))
            row[0].set(ylabel=f"success of R3L less that of {rival}")
            if rate is not None:
                row[0].set_title(f"learning rate {rate:g}", **TITLE)
        for axes, (_, x_title) in zip(grid[-1], PANELS, strict=True):
            axes.set(xlabel=x_title)
        grid[0][1].legend(frameon=False, fontsize=8)
        n = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
        caption = f"{title} ({n} starting {'policy' if counts == [1] else 'policies'} a point)"
        figure.suptitle(fill(caption, TITLE_WIDTH), fontsize=9)
        return svg(figure)


def draw_panel(axes: Any, places: Sequence[Place], name: str, crossing: tuple[float, float] | None) -> None:
    """Draw the gaps against `name`, p or mixed, and where they are predicted to cross zero."""
    with_lines = min(one.over.policies for one in places) >= JOINED
    points = sorted((one for one in places if not math.isnan(getattr(one, name))), key=lambda one: getattr(one, name))
    xs = [getattr(one, name) for one in points]
    axes.axhline(0, color=RIVALS, linewidth=1)
    axes.plot(
        xs,
        [one.over.mean for one in points],
        color=OURS,
        linestyle="-" if with_lines else "none",
        linewidth=2.6,
        marker="o",
        label="after the last iteration, mean over policies",
    )
    axes.plot(
        xs,
        [one.area.mean for one in points],
        color=OURS,
        linestyle="--" if with_lines else "none",
        marker="x",
        label="the same for the mean over training",
    )
    for rank, (x, one) in enumerate(zip(xs, points, strict=True)):
        height = 0.03 + 0.06 * (rank % 3)  # of the panel: labels of near points would lie on each other
        axes.text(x, height, f"F = {one.forgets:g}", transform=axes.get_xaxis_transform(), fontsize=8, ha="center")
        axes.plot([x] * len(one.gaps), list(one.gaps.values()), "o", color=OURS, markersize=4, alpha=0.6)
    axes.margins(y=0.25)  # room for the legend above the points, and for the labels of F below them
    bands = [one.over.interval for one in points]
    if bands and not any(math.isnan(low) for low, _ in bands):
        axes.fill_between(
            xs, [low for low, _ in bands], [high for _, high in bands], color=OURS, alpha=0.2, linewidth=0
        )
    if crossing:
        axes.axvspan(*crossing, color="#E69F00", alpha=0.18, linewidth=0, label="crossing, as predicted")

"""The picture of the map: two panels, the gap over GRPO against p and against GRPO's share of mixed groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from r3l.experiments.pages.pictures import OURS, RIVALS, STYLE, svg
from r3l.experiments.phase_map import Place

PANELS = (("p", "share of unguided attempts that win (p)"), ("mixed", "GRPO's share of groups with mixed rewards"))

JOINED = 3  # policies at every point


def draw_map(places: Sequence[Place], rival: str, title: str, crossing: Mapping[str, tuple[float, float]]) -> str:
    """Return the SVG: the mean gap with its 95 % band, each policy a dot, the predicted `crossing` shaded. Points are
    joined from `JOINED` policies on: a line through single runs would look like a curve."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    policies = sorted({one.over.policies for one in places})
    with matplotlib.rc_context(STYLE):
        figure, both = pyplot.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained", sharey=True)
        for axes, (name, x_title) in zip(both, PANELS, strict=True):
            draw_panel(axes, places, name)
            if name in crossing:
                axes.axvspan(*crossing[name], color="#E69F00", alpha=0.18, linewidth=0, label="crossing, as predicted")
            axes.set(xlabel=x_title)
        both[0].set(ylabel=f"success of R3L less that of {rival}")
        both[1].legend(frameon=False, fontsize=8)
        n = f"n = {policies[0]}" if len(policies) == 1 else f"n = {policies[0]} to {policies[-1]}"
        figure.suptitle(f"{title} ({n} starting {'policy' if policies == [1] else 'policies'} a point)", fontsize=9)
        return svg(figure)


def draw_panel(axes: Any, places: Sequence[Place], name: str) -> None:
    """Draw the gaps against `name`, p or mixed."""
    joined = min(one.over.policies for one in places) >= JOINED
    drawn = sorted((one for one in places if not math.isnan(getattr(one, name))), key=lambda one: getattr(one, name))
    xs = [getattr(one, name) for one in drawn]
    axes.axhline(0, color=RIVALS, linewidth=1)
    axes.plot(
        xs,
        [one.over.mean for one in drawn],
        color=OURS,
        linestyle="-" if joined else "none",
        linewidth=2.6,
        marker="o",
        label="after the last step, mean over policies",
    )
    axes.plot(
        xs,
        [one.area.mean for one in drawn],
        color=OURS,
        linestyle="--" if joined else "none",
        marker="x",
        label="the same for the mean over training",
    )
    for x, one in zip(xs, drawn, strict=True):
        axes.annotate(f"F = {one.forgets:g}", (x, one.over.mean), (6, 4), textcoords="offset points", fontsize=8)
        axes.plot([x] * len(one.gaps), list(one.gaps.values()), "o", color=OURS, markersize=4, alpha=0.6)
    bands = [one.over.interval for one in drawn]
    if bands and not any(math.isnan(low) for low, _ in bands):
        axes.fill_between(
            xs, [low for low, _ in bands], [high for _, high in bands], color=OURS, alpha=0.2, linewidth=0
        )

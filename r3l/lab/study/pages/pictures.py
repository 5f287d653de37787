"""Pictures of an experiment as SVG, by matplotlib (the extra `experiments`). Without it, pages and figures are still
made, and existing pictures stay."""

import importlib.util
import io
import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

from r3l.lab.study.pages.lines import Line, Panel, Picture

# Both can be read on white and on a dark page (contrast of 4 to 1 at least), and the colour-blind can tell them apart.
OURS, RIVALS = "#1b7fc0", "#777777"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 3)), (0, (3, 1, 1, 1, 1, 1)))
STYLE: Any = {
    "svg.hashsalt": "r3l",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RIVALS,
    "grid.alpha": 0.25,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), RIVALS),
}
WIDTH = 88  # letters of a title's line
LEADER: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.5, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 2}
TITLE: dict[str, Any] = {"loc": "left", "fontsize": 9}  # in the middle of the axes a long one would leave the picture
APART = 0.05  # share of the height that two names at the lines' ends are kept apart


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def draw(picture: Picture) -> str:
    """Draw the picture as SVG: the arm it is about thick and coloured with its band, its rivals grey, names beside the
    panel."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    with matplotlib.rc_context(STYLE):
        count = len(picture.panels)
        figure, under = pyplot.subplots(
            count, 1, figsize=(6.4, 3.6 * count), layout="constrained", sharex=True, squeeze=False
        )
        for axes, panel in zip(under[:, 0], picture.panels, strict=True):
            draw_panel(axes, panel, picture.ours)
            axes.set(ylabel=picture.y_title)
            axes.set_title(panel.title, **TITLE)
        first, last = under[0, 0], under[-1, 0]
        first.set_title("\n".join(filter(None, [fill(picture.title, WIDTH), picture.panels[0].title])), **TITLE)
        last.set_xlabel(picture.x_title)
        return svg(figure)


def draw_panel(axes: Any, panel: Panel, ours: str) -> None:
    rivals = [one for one in panel.lines if one.arm != ours]
    for one in panel.lines:
        stroke(axes, one, rivals.index(one) % len(DASHES) if one in rivals else None)
    axes.set(ylim=(0, top(panel, ours)))
    for one, height in zip(by_end(panel.lines), heights(panel.lines), strict=True):
        colour = OURS if one.arm == ours else RIVALS
        axes.annotate(
            one.arm,
            (one.x[-1], one.y[-1]),
            xytext=(1.02, height),
            textcoords=axes.get_yaxis_transform(),  # beside the panel, where no line crosses a name
            color=colour,
            va="center",
            arrowprops=LEADER | {"color": colour},
            annotation_clip=False,  # a name that was lifted above the panel is shown, too
        )


def stroke(axes: Any, one: Line, dash: int | None) -> None:
    """Draw an arm's line: with its dashes, or thick where it has none, with the band of its error."""
    ours = dash is None
    colour = OURS if ours else RIVALS
    axes.plot(
        one.x, one.y, color=colour, linewidth=2.6 if ours else 1.2, linestyle="-" if dash is None else DASHES[dash]
    )
    if ours and one.error and not math.isnan(one.error[0]):  # the rivals' bands would hide one another
        low = [y - error for y, error in zip(one.y, one.error, strict=True)]
        high = [y + error for y, error in zip(one.y, one.error, strict=True)]
        axes.fill_between(one.x, low, high, color=colour, alpha=0.2, linewidth=0)


def by_end(lines: Sequence[Line]) -> list[Line]:
    """Sort the lines that have points, the lowest end first."""
    return sorted((one for one in lines if one.y), key=lambda one: one.y[-1])


def heights(lines: Sequence[Line]) -> list[float]:
    """Place the names: at the lines' ends, lifted where two would touch."""
    values: list[float] = []
    for one in by_end(lines):
        values.append(max(one.y[-1], values[-1] + APART * limit(lines)) if values else one.y[-1])
    return values


def top(panel: Panel, ours: str) -> float:
    """Find the top of the panel, with the band of the arm that it is about."""
    own_lines = (one for one in panel.lines if one.arm == ours)
    edges = [y + error for one in own_lines for y, error in zip(one.y, one.error, strict=True) if not math.isnan(error)]
    return min(1.05, max([limit(panel.lines), *(1.05 * edge for edge in edges)]))


def limit(lines: Sequence[Line]) -> float:
    """Find the top of the lines."""
    return min(1.05, 1.15 * max((y for one in lines for y in one.y), default=1.0)) or 1.0


def svg(figure: Any) -> str:
    """Make the SVG deterministic: no date, and ids from a fixed salt."""
    from matplotlib import pyplot

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return buffer.getvalue()

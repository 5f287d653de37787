"""A chart over a text: a bar for each of its values and each series, from zero to the right, below zero to the left."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from r3l.audit.charts.charts import COLOURS, Scale, canvas
from r3l.system.visible import visible

WIDTH, NAME, VALUE = 320, 110, 46  # pixels: of all, of the text before a bar, of the number behind it
HIGH, GAP = 12, 6
MOST = 30  # values of x that are drawn
LONGEST = 18  # characters of a text that fit


def bar_chart(series: Mapping[str, Mapping[Any, float]], label: str) -> tuple[Markup, int]:
    """Return the bars of the first values of x, and how many values are left out."""
    names = list(dict.fromkeys(at for points in series.values() for at in points))
    values = [value for points in series.values() for value in points.values()]
    scale = Scale(min(0.0, *values), max(0.0, *values), NAME, WIDTH - VALUE)
    parts, top = [], GAP
    for at in names[:MOST]:
        text = visible(str(at))
        shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
        parts.append(f'<text class="tick y" x="{NAME - 6}" y="{top + HIGH - 2}">{escape(shown)}</text>')
        for place, (name, points) in enumerate(series.items()):
            if at in points:
                parts.append(drawn_bar(points[at], scale, top, place, f"{text} {visible(name)}".strip()))
            top += HIGH
        top += GAP
    parts.append(f'<line class="axis" x1="{scale(0)}" x2="{scale(0)}" y1="0" y2="{top}"/>')
    spoken = "; ".join(
        f"{visible(str(at))} {visible(name)} {points[at]:,.5g}".replace("  ", " ")
        for at in names[:MOST]
        for name, points in series.items()
        if at in points
    )
    return canvas("chart", WIDTH, top, "".join(parts), f"{label}: {spoken}"), max(0, len(names) - MOST)


def drawn_bar(value: float, scale: Scale, top: int, place: int, name: str) -> str:
    """Return a bar with its number behind it, and both in words under the mouse."""
    left, right = sorted((scale(0), scale(value)))
    return (
        f"<g><title>{escape(f'{name}: {value:,.5g}')}</title>"
        f'<rect class="fill c{place % COLOURS}" x="{left}" y="{top}" width="{max(right - left, 1):.1f}" '
        f'height="{HIGH - 2}"/><text class="value" x="{right + 4}" y="{top + HIGH - 3}">{value:,.5g}</text></g>'
    )

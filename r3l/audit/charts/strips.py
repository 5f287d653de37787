"""Small drawings in a line of text or a table cell: sparklines, bars, a reply's tokens."""

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup, escape

from r3l.audit.charts.charts import Scale, canvas
from r3l.audit.figures import absent


def sparkline(values: Sequence[float | None], width: int = 96, height: int = 22) -> Markup:
    """Draw a small line without axes, from the least to the greatest value."""
    numbers = [value for value in values if value is not None and not absent(value)]
    if len(numbers) < 2:
        return Markup("")
    scale_x, scale_y = Scale(0, len(values) - 1, 2, width - 4), Scale(min(numbers), max(numbers), height - 3, 3)
    points = [(place, value) for place, value in enumerate(values) if value is not None and not absent(value)]
    line = " L".join(f"{scale_x(place)} {scale_y(value)}" for place, value in points)
    last = points[-1]
    dot = f'<circle class="dot c0" cx="{scale_x(last[0])}" cy="{scale_y(last[1])}" r="2.2"/>'
    return canvas("spark", width, height, f'<path class="line c0" d="M{line}"/>{dot}')


def bar(share: float | None, css: str = "c0", width: int = 120, signed: bool = False) -> Markup:
    """Draw a bar of a share: from the left, or for `signed` from the middle, to the right if positive."""
    value = 0.0 if share is None or absent(share) else max(-1.0, min(1.0, share))
    half = width / 2
    left, long = (half + min(0.0, value * half), abs(value) * half) if signed else (0.0, max(0.0, value) * width)
    centre = f'<line class="axis" x1="{half}" x2="{half}" y1="0" y2="10"/>' if signed else ""
    track = f'<rect class="track" width="{width}" height="10" rx="2"/>'
    fill = f'<rect class="fill {escape(css)}" x="{left:.1f}" width="{long:.1f}" height="10" rx="2"/>'
    return canvas("bar", width, 10, track + fill + centre)


def token_strip(
    weights: Sequence[float], logprobs: Sequence[float], advantage: float, largest: float, term: str = "rl"
) -> Markup:
    """Draw one reply, token by token: blocks for weight x advantage (up: raised or, of SFT, imitated; down: lowered), a
    line for how sure the policy was."""
    count = max(len(weights), len(logprobs))
    if not count:
        return Markup("")
    parts, place = [], 0
    for weight, run in groupby(weights):
        long = len(list(run))
        effect = weight * advantage / largest if largest else 0.0
        high = round(11 * min(1.0, abs(effect)), 2)
        css, top = ("sft" if term == "sft" else "up", 12 - high) if effect >= 0 else ("down", 12)
        parts.append(f'<rect class="{css}" x="{place}" y="{top}" width="{long}" height="{high}"/>' if effect else "")
        place += long
    points = " ".join(f"{k + 0.5} {round(1 + min(22.0, -logprob * 5.5), 1)}" for k, logprob in enumerate(logprobs))
    return Markup(
        f'<svg class="strip" viewBox="0 0 {count} 24" preserveAspectRatio="none" aria-hidden="true">'
        f'<line class="axis" x1="0" x2="{count}" y1="12" y2="12"/>{"".join(parts)}'
        f'<polyline class="sure" points="{points}"/></svg>'
    )

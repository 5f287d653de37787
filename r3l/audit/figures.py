"""Numbers in readable form."""

import math
import re
from datetime import datetime
from typing import Any

DASH = "–"


def absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def scientific(value: float, digits: int) -> str:
    """Write 3.0e−5, with so many digits behind the point."""
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−")


def number(value: Any, digits: int = 3) -> str:
    """Write a count with separators, a measure with so many digits behind the point; a dash where there is none."""
    if absent(value):
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value and abs(value) < 10**-digits:
        return scientific(value, 1)
    text = f"{value:,.{digits}f}"
    return (text if text.strip("-0.,") else text.lstrip("-")).replace("-", "−")


def short_number(value: float) -> str:
    """Write one digit of what is small: 3e-3, 0.02; two of what is not."""
    if value and abs(value) < 0.01:
        return scientific(value, 0)
    return f"{value:.2g}".replace("-", "−")


def signed(value: Any, digits: int = 2) -> str:
    text = number(value, digits)
    return f"+{text}" if not absent(value) and value > 0 else text


def percent(value: Any) -> str:
    if absent(value):
        return DASH
    return f"{100 * value:.0f} %" if value in (0, 1) else f"{100 * value:.1f} %"


def in_format(value: Any, format_: str) -> str:
    """Write a metric as the pages write numbers: a share, a signed number, or one with the format's digits."""
    if format_.endswith("%}"):
        return percent(value)
    digits = int(match[1]) if (match := re.search(r"\.(\d+)f", format_)) else 3
    return signed(value, digits) if "+" in format_ else number(value, digits)


def size(value: Any) -> str:
    """Write bytes in the largest unit that keeps a digit before the point."""
    if absent(value):
        return DASH
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if value >= 10**power:
            return f"{value / 10**power:.1f} {unit}"
    return f"{value} B"


def seconds(value: Any) -> str:
    """Write a span of time: 0.8 s, 42 s, 12 min, 3.4 h."""
    if absent(value):
        return DASH
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def moment(value: Any) -> str:
    """Write an ISO time, to the minute, in UTC."""
    return DASH if not value else datetime.fromisoformat(str(value)).strftime("%Y-%m-%d %H:%M")

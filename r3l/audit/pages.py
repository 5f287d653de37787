"""What the templates use: figures, drawings and links. All text goes through `visible` and is escaped."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from r3l.audit import figures
from r3l.audit.charts import strips
from r3l.audit.lines import line_url, url
from r3l.audit.text.glossary import term
from r3l.audit.text.untrusted import both_ends, excerpt, report_fields, shorten
from r3l.audit.weights import ShadeScale, Trained
from r3l.system.visible import visible

CELL = 400  # characters of a text in a cell of an answer


def shade(trained: Trained | None, turn: int, scale: ShadeScale) -> str:
    """Choose the class of a reply: raised, lowered or imitated (SFT), and how much; masked where its row gives it no
    weight."""
    if trained is None or not trained.aligned or turn not in trained.weights:
        return ""
    if not any(trained.weights[turn]):
        return "masked"
    effect = trained.effect(turn)
    strength = scale.level(effect)
    return f"{hue(trained.row['term'], effect)}{strength}" if strength else "flat"


def hue(term: str, effect: float) -> str:
    if effect <= 0:
        return "down"
    return "sft" if term == "sft" else "up"


def power(value: float) -> str:
    """Write an edge of a scale of shades: 0.03, or 3e-5 where it is smaller than 0.001."""
    return f"{value:.0e}".replace("e-0", "e−").replace("e-", "e−") if 0 < value < 0.00099 else f"{value:.3g}"


def cell(value: Any, limit: int = CELL) -> str:
    """Write a cell of an answer as text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return figures.number(value, 4)
    text = str(value[:40])[:-1] + ", …]" if isinstance(value, list) and len(value) > 40 else str(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def setting_text(value: Any) -> str:
    """Write a setting as it was set."""
    return f"{value:g}" if isinstance(value, float) else cell(value)


def finalize(value: Any) -> Any:
    """Prepare what a template prints: its own markup unchanged, all other text with control characters made visible."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def environment() -> Environment:
    """Make templates that escape everything, and fail on what is not there."""
    templates = Environment(
        loader=PackageLoader("r3l.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "number": figures.number,
        "signed": figures.signed,
        "percent": figures.percent,
        "in_format": figures.in_format,
        "size": figures.size,
        "span": figures.seconds,
        "moment": figures.moment,
        "excerpt": excerpt,
        "short": shorten,
        "both_ends": both_ends,
        "cell": cell,
        "plain": setting_text,
        "fields": report_fields,
        "power": power,
    }
    templates.globals |= {
        "url": url,
        "line_url": line_url,
        "shade": shade,
        "hue": hue,
        "token_strip": strips.token_strip,
        "bar": strips.bar,
        "sparkline": strips.sparkline,
        "term": term,
    }
    return templates

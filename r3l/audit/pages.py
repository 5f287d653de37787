"""What the templates see: figures, charts and links; whatever is text goes through `visible` and is escaped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from r3l.audit import charts, figures
from r3l.audit.lines import Line
from r3l.audit.reader import Row
from r3l.audit.untrusted import excerpt, shortened, visible
from r3l.audit.weights import Trained, level


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart of iterations shows: columns of the view and what each line is called; `share`: on an axis of 0 to 100 %."""

    title: str
    meaning: str
    lines: dict[str, str]
    share: bool = False


CHARTS = (
    Chart("Reward", "mean reward of an attempt", {"base_reward": "base", "retry_reward": "retry", "evaluation_reward": "evaluation"}),
    Chart("Success", "share of attempts that solve their task",
          {"base_success": "base", "retry_success": "retry", "evaluation_success": "evaluation"}, share=True),
    Chart("Improvement rate", "share of retries with more reward than their base",
          {"retry_improvement": "all", "retry_improvement_failed": "of failed bases"}, share=True),
    Chart("Gain", "reward of the retry − reward of its base, mean", {"reward_gain": ""}),
    Chart("Pivot", "turns kept by a retry, mean; turns of a base", {"pivot_mean": "pivot", "base_turns": "turns of a base"}),
    Chart("Mixed groups", "share of groups whose rewards differ: the ones that teach", {"mixed_share": ""}, share=True),
    Chart("Reflections that parse", "share with a valid report", {"parse_rate": ""}, share=True),
    Chart("Entropy", "of the policy at trained tokens, nats", {"entropy": ""}),
    Chart("KL to the starting policy", "k3 estimate on trained tokens", {"kl_start": ""}),
    Chart("Gradient norm", "before clipping", {"grad_norm": ""}),
    Chart("Loss", "total and its terms", {"loss": "total", "loss_rl": "RL", "loss_sft": "SFT"}),
    Chart("Trained tokens", "tokens with weight", {"trained_tokens": ""}),
    Chart("Seconds", "wall time of the update; of all stages, shards added up", {"update_seconds": "update", "stage_seconds": "stages"}),
)  # fmt: skip


def url(*segments: str, **query: Any) -> str:
    """A path of quoted segments with the query's fields that are set."""
    path = "/" + "/".join(quote(str(segment), safe="") for segment in segments)
    given = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def line_url(line: Line, tab: str = "", **query: Any) -> str:
    """A page of a run or branch."""
    return url("run", line.run, *([tab] if tab else []), branch=line.branch, **query)


def iteration_charts(rows_by_line: Sequence[tuple[str, Sequence[Row]]]) -> list[dict[str, Any]]:
    """The charts of one line's iterations, or of several lines over one another (then only the first column of each)."""
    return [compared(chart, rows_by_line) if len(rows_by_line) > 1 else alone(chart, rows_by_line[0][1]) for chart in CHARTS]


def alone(chart: Chart, rows: Sequence[Row], hover: bool = True) -> dict[str, Any]:
    """All columns of the chart that have a value."""
    series = [charts.Series(name, [(row["iteration"], row[column]) for row in rows]) for column, name in chart.lines.items()]
    return drawn(chart, chart.meaning, [one for one in series if any(y is not None for _, y in one.points)], hover)


def compared(chart: Chart, rows_by_line: Sequence[tuple[str, Sequence[Row]]]) -> dict[str, Any]:
    """The chart's first column for each line; a colour is the same line in every chart, whether it has values there or not."""
    column, name = next(iter(chart.lines.items()))
    series = [charts.Series(line, [(row["iteration"], row[column]) for row in rows]) for line, rows in rows_by_line]
    return drawn(chart, f"{chart.meaning} ({name})" if name else chart.meaning, series)


def drawn(chart: Chart, meaning: str, series: Sequence[charts.Series], hover: bool = True) -> dict[str, Any]:
    svg = charts.line_chart(series, share=chart.share, label=chart.title, hover=hover)
    return {"title": chart.title, "meaning": meaning, "svg": svg, "legend": [one.name for one in series if one.name]}


def shade(trained: Trained | None, turn: int, largest: float) -> str:
    """The class of a reply: raised or lowered and how much; masked where its row gives it no weight; else none."""
    if trained is None or not trained.aligned or turn not in trained.weights:
        return ""
    effect = trained.effect(turn)
    if not any(trained.weights[turn]):
        return "masked"
    strength = level(effect, largest)
    return "flat" if not strength else f"{'up' if effect > 0 else 'down'}{strength}"


def report_fields(report: str) -> list[tuple[str, str]]:
    """The report's fields as text, nested ones as JSON."""
    try:
        found = json.loads(report or "{}")
    except ValueError:
        return []
    fields = found.items() if isinstance(found, dict) else ()
    return [(name.replace("_", " "), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for name, value in fields]


def cell(value: Any, limit: int = 400) -> str:
    """A cell of an answer as text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return figures.number(value, 4)
    text = str(value[:40])[:-1] + ", …]" if isinstance(value, list) and len(value) > 40 else str(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def plain(value: Any) -> str:
    """A setting as it was set."""
    return f"{value:g}" if isinstance(value, float) else cell(value)


def finalize(value: Any) -> Any:
    """Whatever a template prints: markup of ours as it is, all other text with its acting characters made visible."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def environment() -> Environment:
    """Templates that escape everything, and fail on what is not there."""
    made = Environment(
        loader=PackageLoader("r3l.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": figures.number, "signed": figures.signed, "percent": figures.percent, "size": figures.size, "span": figures.seconds,
        "moment": figures.moment, "excerpt": excerpt, "short": shortened, "cell": cell, "plain": plain, "fields": report_fields,
    }  # fmt: skip
    made.globals |= {
        "url": url, "line_url": line_url, "shade": shade, "token_strip": charts.token_strip, "bar": charts.bar,
        "sparkline": charts.sparkline,
    }  # fmt: skip
    return made

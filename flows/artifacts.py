"""What the Prefect UI shows of an iteration: a page and a table under fixed keys, so that a key's history is a
timeline."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_progress_artifact, create_table_artifact

from flows.trend import image
from r3l.audit.lines import Line
from r3l.audit.pages import line_url
from r3l.pipeline.summary import figure, history, questions, shown, summarise
from r3l.pipeline.workbench import Workbench
from r3l.store.layout import StageRef
from r3l.store.metrics import METRICS

BARS = "▁▂▃▄▅▆▇█"
TREND = 40
TRENDS = [metric for metric in METRICS if metric.column in {"base_reward", "retry_improvement", "loss", "entropy"}]


def publish(bench: Workbench, refs: Sequence[StageRef]) -> dict[str, Any]:
    """Write the artifacts and return the summary."""
    config = bench.config
    summary = summarise(bench.store, config.run, config.branch, bench.iteration)
    summary |= {"store": bench.store.root, "stages_committed": len(refs)}
    key, title = artifact_key(config.run, config.branch), f"{config.run}, iteration {bench.iteration}"
    figures = [{"figure": name, "value": value} for name, value in shown(summary)]
    create_progress_artifact(
        progress=100.0, key=f"{key}-progress", description=f"{title}: {summary['no_step'] or 'all stages committed'}"
    )
    create_table_artifact(table=figures, key=f"{key}-figures", description=f"Figures of {title}")
    create_markdown_artifact(markdown=page(bench, summary), key=f"{key}-iteration", description=title)
    return summary


def artifact_key(run: str, branch: str) -> str:
    """Prefect's keys are lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", f"r3l-{run}-{branch}".lower()).strip("-")


def page(bench: Workbench, summary: dict[str, Any]) -> str:
    """Return the iteration as Markdown: where to look at it, figures, trend, seconds per stage, questions."""
    line = Line(bench.config.run, bench.config.branch)
    past = history(bench.store, *line.place)
    lines = [
        f"# {line}, iteration {bench.iteration}",
        "",
        look(line, bench.iteration, bench.store.root),
        "",
        image(line, past),
        "",
    ]
    lines += [f"**{summary['no_step']}**", ""] if summary["no_step"] else []
    lines += ["| figure | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in shown(summary)]
    lines += ["", "## Trend", "", "| figure | iterations 0 … now | now |", "|---|---|---|"]
    for metric in TRENDS:
        values = [row.get(metric.column) for row in past][-TREND:]
        lines.append(f"| {metric.name} | {sparkline(values)} | {figure(values[-1] if values else None, '{:.3f}')} |")
    lines += ["", "## Seconds (shards run side by side)", "", "| stage | seconds |", "|---|---|"]
    lines += [f"| {stage} | {seconds:.1f} |" for stage, seconds in summary["stages"].items()]
    lines += ["", "## Ask", "", *(f"```sh\n{question}\n```" for question in questions(*line.place))]
    return "\n".join(lines)


def look(line: Line, iteration: int, root: str) -> str:
    """Return a link to the iteration's groups in the audit app, and the command that serves it."""
    address = os.environ.get("R3L_AUDIT_URL", "http://127.0.0.1:4300").rstrip("/")
    return f"[Its groups, side by side]({address}{line_url(line, 'groups', iteration=iteration)}) while `r3l audit {root}` runs."


def sparkline(values: Sequence[float | None]) -> str:
    """Return one bar character a value, scaled from the least to the greatest; a space where there is no value."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return ""
    low, span = min(known), (max(known) - min(known)) or 1.0
    return "".join(
        " " if value is None or math.isnan(value) else BARS[round((value - low) / span * (len(BARS) - 1))]
        for value in values
    )

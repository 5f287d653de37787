"""Prefect artifacts of an iteration: a page and a table under fixed keys, so that the history of a key is a timeline."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_progress_artifact, create_table_artifact

from flows.trend import image
from r3l.audit.lines import Line
from r3l.audit.pages import line_url
from r3l.pipeline.headline import trends
from r3l.pipeline.summary import history, questions, shown, summarise
from r3l.pipeline.workbench import Workbench
from r3l.store.layout import StageRef


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
    """Return a key that Prefect accepts: lower-case letters, digits and dashes."""
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
    lines += ["", "## Trend", "", "| figure | iterations, oldest first | first | now |", "|---|---|---|---|"]
    lines += [f"| {name} | {bars} | {first} | {now} |" for name, bars, first, now in trends(past)]
    lines += ["", "## Seconds by the clock (shards and stages overlap)", "", "| stage | seconds |", "|---|---|"]
    lines += [f"| {stage} | {seconds:.1f} |" for stage, seconds in summary["stages"].items()]
    lines += ["", "## Ask", "", *(f"```sh\n{question}\n```" for question in questions(*line.place))]
    return "\n".join(lines)


def look(line: Line, iteration: int, root: str) -> str:
    """Return a link to the iteration's groups in the audit app, and the command that serves it."""
    address = os.environ.get("R3L_AUDIT_URL", "http://127.0.0.1:4300").rstrip("/")
    return f"[Its groups, side by side]({address}{line_url(line, 'groups', iteration=iteration)}) while `r3l audit {root}` runs."

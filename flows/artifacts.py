"""Prefect artifacts of an iteration: a page and a table under fixed keys, so that the history of a key is a
timeline."""

import os
import re
from collections.abc import Sequence
from html import escape

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows.trend_image import image
from r3l.audit.addresses import line_url
from r3l.audit.lines import Line
from r3l.config import Config
from r3l.evaluation.score import Scores
from r3l.pipeline.headline import headline, in_short, trends
from r3l.pipeline.summary import Summary, figure_rows, history, questions, summarise
from r3l.pipeline.workbench import Workbench
from r3l.store.layout import StageRef
from r3l.store.stage import Store
from r3l.system.pasted import program
from r3l.system.visible import visible


def publish(bench: Workbench, refs: Sequence[StageRef]) -> Summary:
    """Write the artifacts and return the summary. Their descriptions, which lists of artifacts show, have the
    headline."""
    config = bench.config
    summary = summarise(bench.store, config.run, config.branch, bench.iteration)
    summary |= {"store": bench.store.root, "stages_committed": len(refs)}
    key, short = artifact_key(config.run, config.branch), summary["no_step"] or in_short(summary)
    figures = [{"figure": name, "value": value} for name, value in figure_rows(summary)]
    create_table_artifact(table=figures, key=f"{key}-figures", description=f"{short} · iteration {bench.iteration}")
    show_page(bench.store, config, summary)
    return summary


def show_page(store: Store, config: Config, summary: Summary, score: Scores | None = None) -> None:
    """Write the page of an iteration, with an evaluation of its policy where there is one."""
    if score:
        before = summary["before"] | {"evaluation_success": None}  # it may be on other terms than the one before
        summary = summary | {"evaluation_success": score["rate"], "before": before}
    create_markdown_artifact(
        markdown=page(store, Line(config.run, config.branch), summary, score),
        key=f"{artifact_key(config.run, config.branch)}-iteration",
        description=f"{summary['no_step'] or in_short(summary)} · iteration {summary['iteration']}",
    )


def closing_line(summary: Summary) -> str:
    """Compose the last line of an iteration's log: what it came to, its policy, and where to look."""
    line = Line(summary["run"], summary["branch"])
    policy = f"policy {summary['policy']}" if summary.get("policy") else "no new policy"
    return (
        f"{line}, iteration {summary['iteration']}: {in_short(summary) or 'no figures'}; {policy}; "
        f"look at it with `{program()} audit {summary['store']}`"
    )


def artifact_key(run: str, branch: str) -> str:
    """Derive a key that Prefect accepts: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", f"r3l-{run}-{branch}".lower()).strip("-")


def page(store: Store, line: Line, summary: Summary, score: Scores | None = None) -> str:
    """Write the iteration as Markdown: where to look at it, headline, evaluation, trend, all figures, seconds per
    stage, questions."""
    past = history(store, *line.place)
    lines = [
        f"# {line}, iteration {summary['iteration']}",
        "",
        look(line, summary["iteration"], store.root),
        "",
        image(line, past),
        "",
    ]
    lines += [f"**{summary['no_step']}**", ""] if summary["no_step"] else []
    lines += [f"- **Alarm:** {advice}" for advice in summary.get("alarms", ())] + [""]
    lines += ["| figure | value | since the iteration before |", "|---|---|---|"]
    lines += [f"| {name} | {value} | {change} |" for name, value, change in headline(summary)]
    lines += held_out(score) if score else []
    lines += ["", "## Trend", "", "| figure | iterations, oldest first | first | now |", "|---|---|---|---|"]
    lines += [f"| {name} | {bars} | {first} | {now} |" for name, bars, first, now in trends(past)]
    lines += ["", "## All figures", "", "| figure | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in figure_rows(summary)]
    lines += ["", "## Seconds by the clock (shards and stages overlap)", "", "| stage | seconds |", "|---|---|"]
    lines += [f"| {stage} | {seconds:.1f} |" for stage, seconds in summary["stages"].items()]
    lines += ["", "## Ask", "", *(f"```sh\n{question}\n```" for question in questions(summary))]
    return "\n".join(lines)


def held_out(score: Scores) -> list[str]:
    """Write the section on an evaluation: solved episodes by task type, with intervals."""
    rows = score["table"]
    names = list(rows[0])
    return [
        "",
        f"## Evaluation: {score['posed']}; {score['sample']}",
        "",
        f"| {' | '.join(names)} |",
        "|---" * len(names) + "|",
        *(f"| {' | '.join(html_cell(row[name]) for name in names)} |" for row in rows),
    ]


def html_cell(value: object) -> str:
    """Write the text of a table's cell: a task type is a world's own word, and acts on nothing."""
    return escape(visible(str(value))).replace("|", "&#124;")


def look(line: Line, iteration: int, root: str) -> str:
    """Link to the iteration's groups in the audit app, and give the command that serves it."""
    address = os.environ.get("R3L_AUDIT_URL", "http://127.0.0.1:4300").rstrip("/")
    return (
        f"[Its groups, side by side]({address}{line_url(line, 'groups', iteration=iteration)}) while `r3l audit "
        f"{root}` runs."
    )

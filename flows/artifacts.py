"""Prefect artifacts of an iteration: a page and a table under fixed keys, so that the history of a key is a
timeline."""

import base64
import os
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from r3l.audit.charts.charts import HEIGHT, WIDTH
from r3l.audit.charts.iterations import CHARTS, alone, with_values
from r3l.audit.lines import Line, line_url
from r3l.config import Config
from r3l.evaluation.score import Scores
from r3l.pipeline.summary import Summary, figure_rows, headline, history, in_short, questions, summarise, trends
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


SHOWN = ("Reward", "Improvement rate", "Loss", "Entropy")
NEWEST = 200  # iterations
HEAD = 40  # pixels above each chart: title and legend
COLOURS = ("#2563c9", "#d9730d", "#12876b")
STYLE = """text{font:11px system-ui,sans-serif;fill:#5d6878}.head{font-size:13px;font-weight:600;fill:#1b2330}
.tick.y{text-anchor:end}.tick.x,.title.x,.none{text-anchor:middle}
.grid,.axis{stroke:#e2e6ec}.axis{stroke:#8b95a5}.line{fill:none;stroke-width:1.8}
""" + "".join(f".line.c{k}{{stroke:{colour}}}.dot.c{k},.key.c{k}{{fill:{colour}}}" for k, colour in enumerate(COLOURS))


def image(line: Line, past: Sequence[dict[str, Any]]) -> str:
    """Draw the charts of the audit app, two by two, over the newest iterations, as an image in Markdown."""
    newest = past[-NEWEST:]
    charts = with_values([chart for chart in CHARTS if chart.title in SHOWN], newest)
    panels = "".join(
        panel(alone(chart, newest, hover=False), 12 + k % 2 * (WIDTH + 24), 8 + k // 2 * (HEIGHT + HEAD + 8))
        for k, chart in enumerate(charts)
    )
    width, height = 2 * WIDTH + 48, (len(charts) + 1) // 2 * (HEIGHT + HEAD + 8) + 8
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<style>{STYLE}</style>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>{panels}</svg>'
    )
    return f"![trend of {line}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def panel(chart: dict[str, Any], x: int, y: int) -> str:
    """Draw a chart with its title and the names of its lines above it."""
    names, at = [], x + 4
    for k, name in enumerate(chart["legend"]):
        names.append(
            f'<rect class="key c{k}" x="{at}" y="{y + 26}" width="10" height="3"/>'
            f'<text x="{at + 14}" y="{y + 31}">{name}</text>'
        )
        at += 24 + 7 * len(name)
    place = f'<svg class="chart" x="{x}" y="{y + HEAD}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<text class="head" x="{x + 4}" y="{y + 15}">{chart["title"]}</text>{"".join(names)}' + str(
        chart["svg"]
    ).replace('<svg class="chart"', place, 1)

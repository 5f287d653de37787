"""A report: one self-contained HTML file, for readers without the store or a network."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files as package_files
from pathlib import Path

from markupsafe import Markup

from r3l.audit import findings
from r3l.audit.attempts import Attempt, Group, Panes, group, panes
from r3l.audit.charts.iterations import iteration_charts
from r3l.audit.lines import Line, known_line, line_settings
from r3l.audit.overview import Overview
from r3l.audit.pages import environment
from r3l.audit.reader import Reader, Row
from r3l.store.stage import Store
from r3l.version import __version__

# Why an attempt is told, how many of that kind, and which. Each has its retry, so that there are four panes to look at.
TELLING = (
    ("The retry solved what its base had not", 3, "success AND NOT base_success", "pivot_turn DESC"),
    ("The retry did worse than its base", 2, "reward < base_reward", "reward - base_reward"),
    ("A reflection saw a fault in a solved base", 1, "base_success AND outcome = 'failure'", "iteration DESC"),
    ("The retry changed nothing", 2, "NOT success AND reward = base_reward", "turns - pivot_turn DESC"),
    ("The rollback diverged", 1, "status = 'diverged'", "iteration DESC"),
    ("Back to the very beginning", 1, "pivot_turn = 0 AND reward > base_reward", "iteration DESC"),
)
COUNT = 10
PICK = """
WITH pairs AS MATERIALIZED (
SELECT r.iteration, r.group_id, r.trajectory_id, r.success, r.reward, r.status, r.turns, r.pivot_turn,
       b.success AS base_success, b.reward AS base_reward, f.outcome
FROM (FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind = 'retry') r
JOIN (FROM lines.trajectories WHERE run = $run AND branch = $branch AND kind = 'base') b
  ON (r.iteration, r.base_id) = (b.iteration, b.trajectory_id)
LEFT JOIN (FROM lines.reflections WHERE run = $run AND branch = $branch) f
  ON (r.iteration, r.reflection_id) = (f.iteration, f.reflection_id)
)
SELECT kind, iteration, group_id, trajectory_id FROM (
{kinds}
) WHERE place <= 20 ORDER BY kind, place
"""
PICK_KIND = """
SELECT {kind} AS kind, iteration, group_id, trajectory_id,
       row_number() OVER (ORDER BY {order}, iteration DESC, trajectory_id) AS place
FROM pairs WHERE {condition}
"""
BASES = """
SELECT iteration, group_id, trajectory_id FROM lines.trajectories WHERE run = $run AND branch = $branch
AND kind = 'base'
ORDER BY success, iteration DESC, trajectory_id LIMIT 20
"""


@dataclass(frozen=True, slots=True)
class Telling:
    """An attempt of the report, and why it was selected."""

    why: str
    group: Group
    attempt: Attempt
    panes: Panes


def write_report(store: Store, run: str, path: Path, branch: str = "") -> Path:
    """Write the report of a run or branch: figures, tables, and up to ten telling attempts. Raise StoreError for an
    unknown run."""
    reader = Reader(store, [run], look_again=math.inf, wide=False)  # of one moment, all of it
    try:
        line = known_line(reader, Line(run, branch))
        content = render(reader, line)
    finally:
        reader.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def render(reader: Reader, line: Line) -> str:
    row, _ = Overview(reader.store).line(line)
    past, standing = row["past"], row["standing"]
    sheets = package_files("r3l.audit").joinpath("static")
    style = "".join(sheets.joinpath(name).read_text(encoding="utf-8") for name in ("audit.css", "panes.css"))
    return (
        environment()
        .get_template("report.html")
        .render(
            report=line,
            left_out=reader.left_out(),
            past=past,
            charts=iteration_charts(past, standing.curves),
            standing=standing,
            style=Markup(style),
            version=__version__,
            made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            settings=line_settings(reader, line),
            confusion=findings.confusion(reader, line),
            pivots=findings.by_pivot(reader, line),
            accuracy=findings.accuracy(reader, line),
            account=findings.account(reader, line),
            worst=findings.worst_reflections(reader, line, limit=10),
            reasons=findings.reasons(reader, line)[:20],
            telling=[*telling(reader, line)],
        )
    )


def telling(reader: Reader, line: Line) -> Iterator[Telling]:
    """Yield ten attempts: some of each kind as far as there are any, then more of the first kinds; without retries,
    bases."""
    reasons: dict[str, str] = {}
    candidates = pick(reader, line)
    places: dict[str, Row] = {}
    for enough in (False, True):
        for kind, (why, count, *_) in enumerate(TELLING):
            fresh = [row for row in candidates if row["kind"] == kind and row["trajectory_id"] not in reasons]
            for row in fresh[: COUNT - len(reasons) if enough else min(count, COUNT - len(reasons))]:
                reasons[row["trajectory_id"]], places[row["trajectory_id"]] = why, row
    for row in reader.rows(BASES, {"run": line.run, "branch": line.branch}) if not reasons else []:
        if len(reasons) < COUNT:
            reasons[row["trajectory_id"]], places[row["trajectory_id"]] = "A base attempt", row
    for id_, why in reasons.items():
        iteration = places[id_]["iteration"]
        # a reader of its iteration alone: of a long run each question would open every block
        with closing(Reader(reader.store, [line.run], at=iteration)) as near:
            shown_group = group(near, line, iteration, places[id_]["group_id"])
            attempt = shown_group.attempt(id_)
            yield Telling(why, shown_group, attempt, panes(near, shown_group, attempt))


def pick(reader: Reader, line: Line) -> list[Row]:
    """List the attempts of each kind of TELLING, the best first. A retry may be of several."""
    kinds = [
        PICK_KIND.format(kind=kind, condition=condition, order=order)
        for kind, (_, _, condition, order) in enumerate(TELLING)
    ]
    return reader.rows(PICK.format(kinds="UNION ALL".join(kinds)), {"run": line.run, "branch": line.branch})

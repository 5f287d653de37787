"""Answers of each run to a few fixed questions: asked once per state of a run, and cached on this machine beside its
index."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from r3l.errors import StoreError, did_you_mean
from r3l.store.catalog import (
    DAMAGE,
    connect,
    named_runs,
    names_needed,
    open_connection,
    partly,
    reason,
    tables_in,
    view_sql,
)
from r3l.store.digests import fingerprint_of
from r3l.store.index.blocks import Block, Indexed, blocks_of, index_run, indexed_block
from r3l.store.index.bundles import bundled
from r3l.store.index.cached import index_path, recall, remember
from r3l.store.index.contents import Contents
from r3l.store.stage import Store
from r3l.system.visible import first_line

Answers = dict[str, list[dict[str, Any]]]
TOGETHER = 32  # runs that one connection is made for: bounds its memory and its open files
LINES = """
SELECT run, branch, count(DISTINCT iteration) FILTER (iteration >= 0) AS iterations, max(iteration) AS last_iteration,
       sum(rows)::BIGINT AS rows, sum(bytes)::BIGINT AS bytes, min(committed_at) AS first_commit,
       max(committed_at) AS last_commit
FROM stages GROUP BY run, branch ORDER BY run, branch
"""
# The alarms of a line that stand now, in words. What rings, and why: r3l/store/views/alarms.sql.
STANDING = "SELECT advice FROM lines.alarms WHERE standing AND branch = ? ORDER BY alarm"
PARTS = {"parts": "SELECT * REPLACE (figure::VARCHAR AS figure) FROM lines.alarm_parts"}  # NaN is no JSON
PART = (
    '[{"run": "VARCHAR", "branch": "VARCHAR", "iteration": "INTEGER", "alarm": "VARCHAR", "figure": "DOUBLE", "count": '
    '"BIGINT", "shown": ["VARCHAR"], "said": ["VARCHAR"], "acts": [{"words": ["VARCHAR"], "times": "BIGINT"}]}]'
)

# Of the policies that updates wrote: the one of each line with the highest held-out success, of equals the oldest.
BEST = """
WITH evaluated AS (
    SELECT run, branch, iteration, avg(success::INTEGER) AS share FROM lines.held_out WHERE iteration >= 0 GROUP BY ALL)
SELECT run, branch, arg_max(iteration, (share, -iteration)) AS iteration FROM evaluated GROUP BY run, branch
"""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answers of each run, by the name of the question; and the runs of which something is left out, with the
    reason."""

    runs: dict[str, Answers] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def remember_answers(
    store: Store, kind: str, questions: Mapping[str, str], runs: Sequence[str] | None = None
) -> Remembered:
    """Answer some questions for each run of the store, asked again only of the runs that changed since; a damaged stage
    is left out, and its run named.

    Args:
        kind: what the questions are for; names the place where the answers are kept.
        questions: SQL without parameters, by name; each answer is a few rows with a column `run`.
        runs: ask of these alone; None: of all.
    """
    figures, indexes = Remembered(), list[Indexed]()
    asked_for = fingerprint_of(dict(questions))
    for run in named_runs(store) if runs is None else runs:
        try:
            index = index_run(store, run)
        except DAMAGE as error:
            figures.left_out[run] = reason(error)
            continue
        if index.damage:
            figures.left_out[run] = partly(index.damage)
        cache = recall(index_path(store, run, kind), run)
        if cache and cache["state"] == [index.state, asked_for]:
            figures.runs[run] = cache["answers"]
        else:
            indexes.append(index)
    # in parts: each connection holds the files of its runs open
    for first in range(0, len(indexes), TOGETHER):
        some = {index.run: index for index in indexes[first : first + TOGETHER]}
        for run, answers in ask_runs(store, list(some.values()), questions, figures.left_out):
            figures.runs[run] = answers
            state = [some[run].state, asked_for]
            remember(index_path(store, run, kind), {"run": run, "state": state, "answers": answers})
    return figures


def ask_runs(
    store: Store, some: Sequence[Indexed], questions: Mapping[str, str], left_out: dict[str, str]
) -> Iterator[tuple[str, Answers]]:
    """Yield the answers of some runs, by one connection; where that can't read a file, by one for each."""
    together = Contents()
    for index in some:
        together.add(index.contents)
    try:
        only = names_needed("; ".join(questions.values()))
        with open_connection(store, bundled(store, together, tables_in(only)), only=only) as connection:
            answers = {name: connection.sql(sql).to_arrow_table().to_pylist() for name, sql in questions.items()}
    except duckdb.Error as error:
        if len(some) == 1:
            left_out[some[0].run] = f"its tables can't be read ({first_line(error)})"
        else:
            for index in some:
                yield from ask_runs(store, [index], questions, left_out)
        return
    for index in some:
        yield index.run, {name: [row for row in rows if row["run"] == index.run] for name, rows in answers.items()}


def require_runs(store: Store, runs: Sequence[str]) -> None:
    """Raise StoreError for the first of these runs that the store does not have."""
    there = store.runs() if runs else []
    for run in runs:
        if run not in there:
            raise StoreError(
                f"run {run!r}: not in {store.root}; it has {', '.join(there) or 'no runs'}{did_you_mean(run, there)}"
            )


def standing_alarms(store: Store, run: str, branch: str = "") -> list[str]:
    """Say which alarms stand: they compare with the start, the best or the first third of the run, of which blocks that
    it has left behind are read once on this machine. Of a damaged run, say so, too: an alarm may be missing."""
    left_out, advice = dict[str, str](), list[str]()
    try:
        blocks = [*blocks_of(store, run)]
        left_behind = [block for block in blocks if block.last is not None][:-1]
        damage, parts = dict[str, str](), list[dict[str, Any]]()
        for block in blocks:
            parts += alarm_parts(store, run, block, block not in left_behind, damage, left_out)
        if damage:
            left_out[run] = partly(damage)
        with connect(store, [run], question="FROM held_out") as connection:
            rows = "SELECT unnest(part) FROM (SELECT unnest(from_json($1, $2)) AS part)"
            connection.execute(f"CREATE TABLE lines.alarm_parts AS {rows}", [json.dumps(parts), PART])
            for view in ("alarm_figures", "alarms"):
                connection.execute(view_sql(view))
            advice += [text for (text,) in connection.execute(STANDING, [branch]).fetchall()]
    except DAMAGE as error:
        left_out[run] = reason(error)
    return [*advice, *(f"alarms may be missing, {why}" for why in left_out.values())]


def alarm_parts(
    store: Store, run: str, block: Block, whole: bool, damage: dict[str, str], left_out: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the rows of `alarm_parts` of a block, asked once per state of it; `damage` takes what is damaged in it,
    `left_out` what can't be read.

    Args:
        whole: look at all its files. Of a block that the run has left behind only the folders of its iterations are
            looked at: what was told of it when its files were sound is true even if one is damaged since.
    """
    path = index_path(store, run, "alarms").with_suffix("") / f"{block.name}.json"
    asked, cache = fingerprint_of({"sql": view_sql("alarm_parts")}), recall(path, run)
    index = indexed_block(store, run, block, stages=None if whole else frozenset())
    if cache is None or cache["state"] != [index.state, asked]:
        index = index if whole else indexed_block(store, run, block)
        answers = dict(ask_runs(store, [index], PARTS, left_out)).get(run)
        cache = {"run": run, "state": [index.state, asked], "parts": answers["parts"] if answers else []}
        if answers:
            remember(path, cache)
    damage |= index.damage
    rows: list[dict[str, Any]] = cache["parts"]
    return rows


def best_iteration(store: Store, run: str, branch: str = "") -> int | None:
    """Find the iteration whose policy has the highest held-out success; None where none was evaluated.

    Raises:
        StoreError: the run is damaged, so that another iteration may be the best one.
    """
    figures = remember_answers(store, "best", {"best": BEST}, [run])
    if why := figures.left_out.get(run):
        raise StoreError(
            f"run {run}: which policy is best on held-out tasks can't be told, {why}; `r3l check {run}` names what is "
            "damaged; `r3l export-policy --iteration N` takes the one that you name"
        )
    return next((row["iteration"] for row in figures.runs[run]["best"] if row["branch"] == branch), None)

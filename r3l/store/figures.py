"""Answers of each run to a few fixed questions: asked once per state of a run, and cached on this machine beside its
index."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb

from r3l.errors import StoreError
from r3l.store.catalog import VIEWS, connect, names_needed, open_connection, stages_read, tables_in, view_sql
from r3l.store.digests import fingerprint_of
from r3l.store.index.blocks import EVALUATIONS, Block, Indexed, blocks_of, index_run, indexed_block, together
from r3l.store.index.bundles import bundled
from r3l.store.index.cached import index_path, recall, remember
from r3l.store.index.readable import DAMAGE, named_runs, partly, reason
from r3l.store.stage import Store
from r3l.system.visible import first_line

Answers = dict[str, list[dict[str, Any]]]
AT_ONCE = 8  # blocks: to plan such questions takes as long as to ask one of 100 iterations
TOGETHER = 16  # runs that one connection is made for: bounds its memory and its files, whose footers it keeps
SIZES = """
SELECT run, branch, {iteration} count(DISTINCT iteration) FILTER (iteration >= 0) AS iterations,
       max(iteration) AS last_iteration, sum(rows)::BIGINT AS rows, sum(bytes)::BIGINT AS bytes,
       min(committed_at) AS first_commit, max(committed_at) AS last_commit
FROM stages GROUP BY {iteration} run, branch ORDER BY {iteration} run, branch
"""
LINES, LINES_BY_ITERATION = SIZES.format(iteration=""), SIZES.format(iteration="iteration,")
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
    store: Store, kind: str, questions: Mapping[str, str], runs: Sequence[str] | None = None, at_once: int = 0
) -> Remembered:
    """Answer some questions for each run of the store, asked again only of the runs that changed since; a damaged stage
    is left out, and its run named.

    Args:
        kind: what the questions are for; names the place where the answers are kept.
        questions: SQL without parameters, by name; each answer is a few rows with a column `run`.
        runs: ask of these alone; None: of all.
        at_once: of a run that has left blocks behind ask by blocks, so many at once, as `answers_of_blocks` says: the
            answers are those of the blocks, one after another. 0: ask of the whole run.
    """
    figures, asked_for = Remembered(), fingerprint_of(dict(questions))
    changed = changed_runs(store, kind, questions, runs, at_once, figures)
    # few at a time: each index, and each connection, holds the files of its runs
    while some := {index.run: index for index in islice(changed, TOGETHER)}:
        for run, answers in ask_runs(store, [*some.values()], questions, figures.left_out):
            figures.runs[run] = answers
            state = [some[run].state, asked_for]
            remember(index_path(store, run, kind), {"run": run, "state": state, "answers": answers})
    return figures


def changed_runs(
    store: Store,
    kind: str,
    questions: Mapping[str, str],
    runs: Sequence[str] | None,
    at_once: int,
    figures: Remembered,
) -> Iterator[Indexed]:
    """Yield the runs that changed since they were asked; `figures` takes the answers of the others, and of those that
    are asked by blocks. Arguments as of `remember_answers`."""
    asked_for = fingerprint_of(dict(questions))
    for run in named_runs(store) if runs is None else runs:
        try:
            if at_once and left_behind(blocks := [*blocks_of(store, run)]):
                figures.runs[run] = answers_of_blocks(store, run, blocks, kind, questions, figures.left_out, at_once)
                continue
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
            yield index


def ask_runs(
    store: Store, some: Sequence[Indexed], questions: Mapping[str, str], left_out: dict[str, str]
) -> Iterator[tuple[str, Answers]]:
    """Yield the answers of some runs, by one connection; where that can't read a file, by one for each."""
    try:
        only = names_needed("; ".join(questions.values()))
        with open_connection(store, bundled(store, together(some), tables_in(only)), only=only) as connection:
            answers = answered(connection, questions)
    except duckdb.Error as error:
        if len(some) == 1:
            left_out[some[0].run] = f"its tables can't be read ({first_line(error)})"
        else:
            for index in some:
                yield from ask_runs(store, [index], questions, left_out)
        return
    for index in some:
        yield index.run, {name: [row for row in rows if row["run"] == index.run] for name, rows in answers.items()}


def answered(connection: duckdb.DuckDBPyConnection, questions: Mapping[str, str]) -> Answers:
    return {name: connection.sql(sql).to_arrow_table().to_pylist() for name, sql in questions.items()}


def standing_alarms(store: Store, run: str, branch: str = "") -> list[str]:
    """Say which alarms stand: they compare with the start, the best or the first third of the run, of which blocks that
    it has left behind are read once on this machine. Of a damaged run, say so, too: an alarm may be missing."""
    left_out, advice = dict[str, str](), list[str]()
    try:
        parts = answers_of_blocks(store, run, [*blocks_of(store, run)], "alarms", PARTS, left_out, AT_ONCE)["parts"]
        with connect(store, [run], question="FROM held_out") as connection:
            rows = "SELECT unnest(part) FROM (SELECT unnest(from_json($1, $2)) AS part)"
            connection.execute(f"CREATE TABLE lines.alarm_parts AS {rows}", [json.dumps(parts), PART])
            for view in ("alarm_figures", "alarms"):
                connection.execute(view_sql(view))
            advice += [text for (text,) in connection.execute(STANDING, [branch]).fetchall()]
    except DAMAGE as error:
        left_out[run] = reason(error)
    return [*advice, *(f"alarms may be missing, {why}" for why in left_out.values())]


def left_behind(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks of iterations that are not the run's newest one."""
    return [block for block in blocks if block.last is not None][:-1]


def answers_of_blocks(
    store: Store,
    run: str,
    blocks: Sequence[Block],
    kind: str,
    questions: Mapping[str, str],
    left_out: dict[str, str],
    at_once: int = 1,
) -> Answers:
    """Answer some questions for each block of a run, asked once per state of it; those about evaluations alone for the
    run: which can be compared, all of them decide. `left_out` takes the run where something is left out.

    Of a block that the run has left behind only the folders of its iterations are looked at: what was told of it when
    its files were sound is true even if one is damaged since.

    Args:
        at_once: of how many blocks one question asks, whose rows have a column `iteration` then.
    """
    of_evaluations = {name: sql for name, sql in questions.items() if stages_read(names_needed(sql)) == EVALUATIONS}
    apart = {name: sql for name, sql in questions.items() if name not in of_evaluations}
    asked = fingerprint_of({name: [sql, *views_of(sql)] for name, sql in apart.items()})
    of_block, missing = dict[str, Answers](), list[tuple[Block, Indexed]]()
    damage, behind = dict[str, str](), left_behind(blocks)
    for block in blocks:
        cache = recall(path_of(store, run, kind, block), run)
        index = indexed_block(store, run, block, stages=frozenset() if block in behind else None)
        if cache and cache["state"] == [index.state, asked]:
            of_block[block.name] = cache["answers"]
        else:
            missing.append((block, indexed_block(store, run, block) if block in behind else index))
        damage |= index.damage
    for first in range(0, len(missing), at_once):
        some = missing[first : first + at_once]
        contents = partial(together, [index for _, index in some])
        if its := dict(ask_runs(store, [Indexed(run, "", contents, {}, True)], apart, left_out)).get(run):
            for block, index in some:
                of_block[block.name] = its if at_once == 1 else its_own(its, block)
                cached = {"run": run, "state": [index.state, asked], "answers": of_block[block.name]}
                remember(path_of(store, run, kind, block), cached)
    if damage:
        left_out[run] = partly(damage)
    answers = {name: [row for block in blocks for row in of_block.get(block.name, {}).get(name, ())] for name in apart}
    if of_evaluations:
        with connect(store, [run], question="; ".join(of_evaluations.values())) as connection:
            answers |= answered(connection, of_evaluations)
    return answers


def path_of(store: Store, run: str, kind: str, block: Block) -> Path:
    return index_path(store, run, kind).with_suffix("") / f"{block.name}.json"


def its_own(answers: Answers, block: Block) -> Answers:
    """Return the rows that are of a block: of its iterations of the run itself, or of all branches."""
    numbers = {int(folder.rpartition("=")[2]) for folder in block.folders} if block.last is not None else None
    return {
        name: [row for row in rows if (row["iteration"] in numbers and not row["branch"] if numbers else row["branch"])]
        for name, rows in answers.items()
    }


def views_of(sql: str) -> list[str]:
    """List the SQL of the views that a question reads."""
    return [view_sql(view) for view in VIEWS if view in names_needed(sql)]


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

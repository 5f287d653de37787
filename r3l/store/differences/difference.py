"""What a replay changed: two branches of one iteration compared by stage, row and figure."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from r3l.errors import StoreError
from r3l.stages import STAGES, stages_that
from r3l.store.catalog import connect
from r3l.store.query import query
from r3l.store.stage import Store
from r3l.system.machine import other_machine
from r3l.system.nested import leaves

Row = dict[str, Any]
# What is the same in every replay of the same settings: no sampling, no optimiser.
DETERMINISTIC = stages_that(lambda stage: stage.deterministic)
NOT_FIGURES = {"run", "branch", "iteration", "first_commit", "last_commit", "stage_seconds", "update_seconds"}
SIDES = "(SELECT * FROM lines.{table} WHERE iteration = $iteration AND branch = ${side}) {side}"
MADE = """
SELECT stage, shard, digest, fingerprint, settings, machine, rows FROM stages
WHERE iteration = $iteration AND branch = $branch ORDER BY stage, shard
"""
ADVANTAGES = f"""
SELECT count(*) FILTER ((b.advantage, b.turn_advantages) IS DISTINCT FROM (a.advantage, a.turn_advantages)) AS changed,
       count(*) AS members, max(abs(b.advantage - a.advantage)) AS largest,
       avg(abs(b.advantage - a.advantage)) AS mean, count(*) FILTER (sign(b.advantage) <> sign(a.advantage)) AS turned
FROM {SIDES.format(table="credit", side="a")} JOIN {SIDES.format(table="credit", side="b")} USING (trajectory_id)
"""
ROWS = f"""
SELECT row_id, a.row_id IS NOT NULL AND b.row_id IS NOT NULL AS in_both, a.row_id IS NOT NULL AS in_a,
       a.token_ids <> b.token_ids AS other_tokens, a.weights <> b.weights AS other_weights,
       (a.advantage, a.advantages) IS DISTINCT FROM (b.advantage, b.advantages) AS other_advantage,
       list_sum(a.weights) AS mass_a, list_sum(b.weights) AS mass_b, a.trained_tokens AS trained_a,
       b.trained_tokens AS trained_b
FROM {SIDES.format(table="training_rows", side="a")} FULL JOIN {SIDES.format(table="training_rows", side="b")}
USING (row_id)
ORDER BY row_id
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of branch b from branch a in one iteration."""

    run: str
    iteration: int
    branch_a: str
    branch_b: str
    stages: list[Row]  # stage, shard, same_settings, same_rows, for what both made
    machines: list[Row]  # stage, what, a, b: where two stages were made on different processors, libraries, threads
    settings: list[Row]  # stage, setting, a, b
    advantages: Row  # changed, members, largest, mean, turned (other sign)
    rows: Row  # only_a, only_b, both, other_tokens, other_weights, other_advantage, trained_a, trained_b
    figures: list[Row]  # name, a, b: the columns of `iterations` that differ, of stages that both have
    only_a: list[str]  # stages that b neither made nor took over
    only_b: list[str]

    @property
    def proven(self) -> bool:
        """Tell whether the settings are unchanged, and every deterministic stage that was made again has an equal
        digest, in all its shards; False where there is no such stage."""
        return bool(self.deterministic) and all(
            row["same_settings"] and (row["same_rows"] or row["stage"] not in DETERMINISTIC) for row in self.stages
        )

    @property
    def deterministic(self) -> list[str]:
        """List the deterministic stages that both branches made."""
        stage_names = {row["stage"] for row in self.stages}
        return [stage for stage in DETERMINISTIC if stage in stage_names]

    def __str__(self) -> str:
        return "\n".join(difference_lines(self))


def diff(store: Store, run: str, iteration: int, branch_a: str, branch_b: str) -> Difference:
    """Compare two branches ("" is the run itself). Raise StoreError where one of them made nothing in the iteration."""
    with connect(store, [run]) as connection:
        stages_of = {
            branch: {(row["stage"], row["shard"]): row for row in rows(connection, MADE, iteration, branch=branch)}
            for branch in (branch_a, branch_b)
        }
        for branch, stages in stages_of.items():
            if not stages:
                others = ", ".join(store.branches(run)) or "no branches"
                raise StoreError(f"run {run} iteration {iteration}: branch {branch!r} made nothing; it has {others}")
        a, b = stages_of[branch_a], stages_of[branch_b]
        both = [(a[key], b[key]) for key in a if key in b]
        twice = {stage for stage, _ in a} & {stage for stage, _ in b}
        sides = {"a": branch_a, "b": branch_b}
        stage_names = {stage for stage, _ in (*a, *b)}
        seen_a, seen_b = (visible(stages, branch) & stage_names for branch, stages in ((branch_a, a), (branch_b, b)))
        return Difference(
            run,
            iteration,
            branch_a,
            branch_b,
            stages=[
                {
                    "stage": key[0],
                    "shard": key[1],
                    "same_settings": key in a and key in b and a[key]["fingerprint"] == b[key]["fingerprint"],
                    "same_rows": key in a and key in b and a[key]["digest"] == b[key]["digest"],
                }
                for key in dict.fromkeys((*a, *b))
                if key[0] in twice  # a shard that one of them lacks is a difference, too
            ],
            machines=list(other_machines(both)),
            settings=list(changed_settings(both)),
            advantages=rows(connection, ADVANTAGES, iteration, **sides)[0],
            rows=count_rows(rows(connection, ROWS, iteration, **sides)),
            figures=list(changed_figures(connection, iteration, branch_a, branch_b, one_lacks=seen_a != seen_b)),
            only_a=[stage for stage in STAGES if stage in seen_a - seen_b],
            only_b=[stage for stage in STAGES if stage in seen_b - seen_a],
        )


def rows(connection: duckdb.DuckDBPyConnection, sql: str, iteration: int, **parameters: str) -> list[Row]:
    answer: list[Row] = query(connection, sql, {"iteration": iteration, **parameters}).to_pylist()
    return answer


def count_rows(pairs: list[Row]) -> Row:
    """Count the training rows of both sides."""
    both = [row for row in pairs if row["in_both"]]
    return {
        "only_a": [row["row_id"] for row in pairs if row["in_a"] and not row["in_both"]],
        "only_b": [row["row_id"] for row in pairs if not row["in_a"]],
        "both": len(both),
        "other_tokens": sum(bool(row["other_tokens"]) for row in both),
        "other_weights": sum(bool(row["other_weights"]) for row in both),
        "other_advantage": sum(bool(row["other_advantage"]) for row in both),
        "trained_a": sum(row["trained_a"] or 0 for row in pairs),
        "trained_b": sum(row["trained_b"] or 0 for row in pairs),
    }


def other_machines(both: list[tuple[Row, Row]]) -> Iterator[Row]:
    """Yield what differs between the machines, each once, with the first stage that was made on them."""
    seen = set()
    for a, b in both:
        for what, values in other_machine(*(json.loads(side["machine"]) for side in (a, b))).items():
            if (what, *values) not in seen:
                seen.add((what, *values))
                yield {"stage": a["stage"], "what": what, "a": values[0], "b": values[1]}


def changed_settings(both: list[tuple[Row, Row]]) -> Iterator[Row]:
    """Yield the settings that differ, each once per stage."""
    names_told = set()
    for a, b in both:
        before, after = leaves(json.loads(a["settings"])), leaves(json.loads(b["settings"]))
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name) and (a["stage"], name) not in names_told:
                names_told.add((a["stage"], name))
                yield {"stage": a["stage"], "setting": name, "a": before.get(name), "b": after.get(name)}


def visible(made: Iterable[tuple[str, int | None]], branch: str) -> set[str]:
    """Find the stages that a line has in the iteration: its own, and before a branch's first one those that it took
    over."""
    own = {stage for stage, _ in made}
    order = list(STAGES)
    return own | set(order[: min(map(order.index, own))] if branch else ())


def changed_figures(
    connection: duckdb.DuckDBPyConnection, iteration: int, branch_a: str, branch_b: str, one_lacks: bool
) -> Iterator[Row]:
    """Yield what the two lines say differently; where one of them lacks stages, only what both say."""
    sql = "SELECT * FROM lines.iterations WHERE iteration = $iteration AND branch = $branch"
    a, b = (rows(connection, sql, iteration, branch=branch)[0] for branch in (branch_a, branch_b))
    for name in a.keys() - NOT_FIGURES if one_lacks else ():
        if a[name] is None or b[name] is None:
            a[name] = b[name] = None
    yield from (
        {"name": name, "a": a[name], "b": b[name]} for name in a if name not in NOT_FIGURES and a[name] != b[name]
    )


def difference_lines(difference: Difference) -> Iterator[str]:
    """Yield the difference in lines of text."""
    a, b = difference.branch_a or "the run", difference.branch_b or "the run"
    yield f"{difference.run} iteration {difference.iteration}: {b} against {a}"
    yield from (
        f"  another machine, from {row['stage']} on: {row['what']} {row['b'] or 'none'} (was {row['a'] or 'none'})"
        for row in difference.machines
    )
    for stage in dict.fromkeys(row["stage"] for row in difference.stages):
        shards = [row for row in difference.stages if row["stage"] == stage]
        settings = "same settings" if all(row["same_settings"] for row in shards) else "other settings"
        equal = sum(row["same_rows"] for row in shards)
        yield f"  {stage:<14} {settings}, {equal} of {len(shards)} shards with equal digests"
    yield from (f"  {row['stage']}: {row['setting']} = {row['b']} (was {row['a']})" for row in difference.settings)
    if difference.advantages["members"]:
        of = difference.advantages
        size = (
            f", by {of['mean']:.4g} in the mean and {of['largest']:.4g} at most; {of['turned']} change sign"
            if of["changed"]
            else ""
        )
        yield f"  advantages     {of['changed']} of {of['members']} changed{size}"
    counts = difference.rows
    yield f"  training rows  {counts['both']} in both, {len(counts['only_b'])} in, {len(counts['only_a'])} out"
    yield (
        f"  weights        {counts['other_weights']} rows changed; {counts['trained_b']} tokens with weight (were "
        f"{counts['trained_a']})"
    )
    yield from (
        f"  {row['name']:<14} {value_text(row['b'])} (was {value_text(row['a'])})" for row in difference.figures
    )
    yield from (
        f"  {what:<14} {', '.join(stages)}"
        for what, stages in (("not replayed", difference.only_a), ("new", difference.only_b))
        if stages
    )
    if difference.proven:
        yield (
            "  proven: unchanged settings, and the deterministic stages that were made again "
            f"({', '.join(difference.deterministic)}) came out with equal digests"
        )


def value_text(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

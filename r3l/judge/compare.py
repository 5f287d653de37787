"""Stored rows beside those that were made again: the first row and column in which they differ."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from r3l.store.differences.first_difference import Line, Parting, compare_places
from r3l.store.stage import Store
from r3l.store.tables.schemas import TABLES, VOLATILE

# What another version of the code may have changed: rows that were made under another one are not made again.
OF_THE_CODE = ("code", "prompts", "data", "world", "method_version")
RETIRED = {"environment.server_goals"}  # settings of earlier versions on which no row depends
RELATIVE = 1e-9  # what another processor's rounding may change in a mean or a deviation
SHOWN = 120  # characters of a value
NAMES = {"reflections": "reflection_id", "training_rows": "row_id", "events": "subject_id", "tasks": "task_id"}
NAMES |= {"replay": "group_id", "updates": "policy"}  # what names a row; elsewhere its trajectory


def difference(table: str, stored: pa.Table, made: pa.Table, columns: Sequence[str]) -> str:
    """Say in words where two tables differ first; empty where they don't.

    Args:
        columns: those that are compared, in this order.
    """
    if stored.num_rows != made.num_rows:
        counts = f"{stored.num_rows} rows are stored, {made.num_rows} follow from its parents"
        return f"{table}: {counts}{odd(table, stored, made)}"
    # without looking at single values: Arrow takes no NaN for another one
    differing = [name for name in columns if not stored[name].combine_chunks().equals(made[name].combine_chunks())]
    firsts = [(row, name) for name in differing if (row := first_row(stored[name], made[name])) is not None]
    if not firsts:
        return ""
    row, name = min(firsts, key=lambda found: found[0])
    left, right = stored[name][row].as_py(), made[name][row].as_py()
    return (
        f"{table}: row {row} ({shown_text(stored[name_of(table)][row].as_py())}): {name} is {values_text(left, right)}"
    )


def first_row(stored: pa.ChunkedArray, made: pa.ChunkedArray) -> int | None:
    rows = enumerate(zip(stored.to_pylist(), made.to_pylist(), strict=True))
    return next((row for row, (left, right) in rows if not same(left, right)), None)


def same(left: Any, right: Any) -> bool:
    """Tell whether two values are equal, NaN to NaN, and numbers but for their rounding."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or math.isclose(left, right, rel_tol=RELATIVE, abs_tol=1e-12)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def odd(table: str, stored: pa.Table, made: pa.Table) -> str:
    """Name the first row that only one of the tables has."""
    ours, theirs = (Counter(rows[name_of(table)].to_pylist()) for rows in (stored, made))
    for id_ in (*ours, *theirs):
        if ours[id_] != theirs[id_]:
            return f": {shown_text(id_)} is stored {ours[id_]} times, and follows {theirs[id_]} times"
    return ""


def name_of(table: str) -> str:
    """Name the column that names a row."""
    return NAMES.get(table, "trajectory_id")


def values_text(left: Any, right: Any) -> str:
    """Write two values in words; of lists, those at the first place where they differ."""
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return f"a list of {len(left)}, computed: one of {len(right)}"
        place = next(k for k, pair in enumerate(zip(left, right, strict=True)) if not same(*pair))
        return f"{shown_text(left[place])} at {place}, computed: {shown_text(right[place])}"
    if isinstance(left, str) and isinstance(right, str) and min(len(left), len(right)) > SHOWN:
        first = next(
            (k for k, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
        )
        begin = max(first - SHOWN // 4, 0)
        return f"{shown_text(left[begin:])} from letter {begin} on, computed: {shown_text(right[begin:])}"
    return f"{shown_text(left)}, computed: {shown_text(right)}"


def shown_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def columns_to_compare(table: str, lacking: Mapping[str, object]) -> list[str]:
    """List the columns of a table to compare: not wall times, nor what the version that wrote it did not have."""
    return [one.name for one in TABLES[table] if one.name not in VOLATILE and one.name not in lacking]


def settings_differences(
    stored: Mapping[str, Any], made: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield (setting, what) for each that is another, or that is stored and unknown. Settings that came since are the
    business of whoever reads an older run."""
    for name, value in stored.items():
        place = f"{path}{name}"
        if name not in made and place not in RETIRED:
            yield place, f"{shown_text(value)} is stored, the iteration's settings have none"
        elif isinstance(value, Mapping) and isinstance(made.get(name), Mapping):
            yield from settings_differences(value, made[name], f"{place}.")
        elif name in made and not same(value, made[name]):
            yield place, f"{shown_text(value)} is stored, the iteration's settings say {shown_text(made[name])}"


@dataclass(frozen=True, slots=True)
class PlayedAgain:
    """A stage of a replay: how many of its shards were compared, how many are equal, and the first difference."""

    stage: str
    shards: int
    equal: int
    first: Parting | None

    def __str__(self) -> str:
        line = f"  {self.stage:<14} {self.equal} of {self.shards} shards equal, bit for bit"
        return f"{line}\n  {self.first}" if self.first else line


def played_again(store: Store, run: str, iteration: int, source: str, branch: str) -> list[PlayedAgain]:
    """Compare the stages that a branch made in an iteration with those of the branch that it replayed."""
    branch_stages = {(ref.stage, ref.shard) for ref in store.stages(run, branch, iteration)}
    by_stage: dict[str, list[Parting | None]] = {}
    for (_, stage, shard), differences in compare_places(Line(store, run, source), Line(store, run, branch), iteration):
        if (stage, shard) in branch_stages:
            by_stage.setdefault(stage, []).append(differences)
    return [
        PlayedAgain(stage, len(differences), differences.count(None), next(filter(None, differences), None))
        for stage, differences in by_stage.items()
    ]

"""Ten questions of data/queries as Python asks them of rows: what JSON lines and pickles leave to their reader."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any

from tests.benchmarks.table.stores import Rows

Tables = dict[str, Rows]
Answer = list[tuple[Any, ...]]


def grouped(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def mean(values: Iterable[Any], digits: int) -> float | None:
    kept = [value for value in values if value is not None]
    return round(fmean(kept), digits) if kept else None


def of_kind(tables: Tables, kind: str) -> Rows:
    return [row for row in tables["trajectories"] if row["kind"] == kind]


def bases(tables: Tables) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["run"], row["trajectory_id"]): row for row in of_kind(tables, "base")}


def pivots(tables: Tables) -> list[tuple[dict[str, Any], dict[str, Any], float]]:
    """(retry, base, gain)"""
    base = bases(tables)
    pairs = [(row, base[row["run"], row["base_id"]]) for row in of_kind(tables, "retry")]
    return [(retry, own, retry["reward"] - own["reward"]) for retry, own in pairs]


def pivots_that_paid_off(tables: Tables) -> Answer:
    return [
        (
            *key,
            len(found),
            mean((gain > 0 for *_, gain in found), 3),
            mean((gain for *_, gain in found), 3),
            mean((base["turns"] for _, base, _ in found), 1),
        )
        for key, found in grouped(pivots(tables), lambda one: (one[0]["run"], one[0]["pivot_turn"])).items()
    ]


def reflections_and_their_worth(tables: Tables) -> Answer:
    base = bases(tables)
    gains = {(retry["run"], retry["reflection_id"]): gain for retry, _, gain in pivots(tables)}
    rows = []
    for key, found in grouped(tables["reflections"], lambda row: (row["run"], row["status"], row["outcome"])).items():
        own = [gains[at] for row in found if (at := (row["run"], row["reflection_id"])) in gains]
        won = mean((base[row["run"], row["base_id"]]["success"] for row in found), 3)
        rows.append((*key, len(found), won, len(own), mean((gain > 0 for gain in own), 3)))
    return rows


def why_no_retry(tables: Tables) -> Answer:
    base = bases(tables)
    skipped = [row for row in tables["reflections"] if row["decision"] not in ("retry", None)]
    return [
        (*key, len(found), mean((base[row["run"], row["base_id"]]["reward"] for row in found), 3))
        for key, found in grouped(skipped, lambda row: (row["run"], row["decision"])).items()
    ]


def by_group(rows: Rows) -> dict[tuple[Any, ...], Rows]:
    return grouped(rows, lambda row: (row["run"], row["branch"], row["iteration"], row["group_id"]))


def mixed(rows: Rows) -> bool:
    return len({row["reward"] for row in rows}) > 1


def mixed_groups(tables: Tables) -> Answer:
    own = {key: mixed(rows) for key, rows in by_group(of_kind(tables, "base")).items()}
    groups = {key: mixed(rows) for key, rows in by_group(tables["credit"]).items()}
    return [
        (*place, len(keys), sum(own.get(key, False) for key in keys), sum(groups[key] for key in keys))
        for place, keys in grouped(groups, lambda key: key[:3]).items()
    ]


def reasons(tables: Tables) -> Answer:
    found = grouped(tables["events"], lambda row: (row["run"], row["stage"], row["event"], row["reason"]))
    last = sorted(((*key, len(rows)) for key, rows in found.items()), key=lambda row: (row[0], -row[4], *row[1:4]))
    return last[:50]


def task_types(tables: Tables) -> Answer:
    """No base of these runs has more than one retry."""
    retried = grouped(pivots(tables), lambda one: (one[1]["run"], one[1]["task_type"]))
    return [
        (
            *key, len(found), mean((row["success"] for row in found), 3), len(own := retried.get(key, [])),
            mean((retry["success"] for retry, *_ in own), 3), mean((gain for *_, gain in own), 3),
        )
        for key, found in grouped(of_kind(tables, "base"), lambda row: (row["run"], row["task_type"])).items()
    ]  # fmt: skip


def signs_of_credit(tables: Tables) -> Answer:
    rows = []
    for key, found in grouped(tables["credit"], lambda row: (row["run"], row["branch"], row["iteration"])).items():
        positive = sum(max(row["advantage"], 0) for row in found)
        negative = -sum(min(row["advantage"], 0) for row in found)
        rows.append((*key, round(positive, 3), round(negative, 3), round(positive / negative, 2) if negative else None))
    return rows


def tokens_with_weight(tables: Tables) -> Answer:
    rows = []
    for key, found in grouped(tables["training_rows"], lambda row: (row["run"], row["role"], row["term"])).items():
        tokens, trained = sum(len(row["token_ids"]) for row in found), sum(row["trained_tokens"] for row in found)
        rows.append((*key, len(found), tokens, trained, round(trained / tokens, 3)))
    return rows


def endings(tables: Tables) -> Answer:
    return [
        (*key, len(found), mean((row["reward"] for row in found), 3), mean((row["turns"] for row in found), 1))
        for key, found in grouped(tables["trajectories"], lambda row: (row["run"], row["kind"], row["status"])).items()
    ]


def bad_replies(tables: Tables) -> Answer:
    return [
        (*key, len(found), sum(not row["valid"] for row in found), mean((not row["valid"] for row in found), 3))
        for key, found in grouped(tables["turns"], lambda row: (row["run"], row["turn"])).items()
    ]


ANSWERS: dict[str, Callable[[Tables], Answer]] = {
    "02": pivots_that_paid_off, "03": reflections_and_their_worth, "04": why_no_retry, "05": mixed_groups,
    "07": reasons, "08": task_types, "10": signs_of_credit, "11": tokens_with_weight, "13": endings, "14": bad_replies,
}  # fmt: skip

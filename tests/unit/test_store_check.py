"""`check_run` finds each broken invariant and names the row; each case breaks one thing in a sound iteration."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from r3l.errors import StoreError
from r3l.records import Turn
from r3l.store import query
from r3l.store.catalog import load_manifests
from r3l.store.check import INVARIANTS, check_run, open_for_checks
from r3l.store.damage import Finding
from r3l.store.stage import Store
from tests.support.broken_rows import broken_rows
from tests.support.store_iteration import Tables, commit_iteration, commit_stage, iteration_tables
from tests.unit.test_store_planted import DEFECTS

Break = Callable[[dict[str, Tables]], None]


def change(stage: str, table: str, number: int, **changes: Any) -> Break:
    """Change columns of one row."""

    def breaking(tables: dict[str, Tables]) -> None:
        rows = tables[stage][table]
        rows[number] = replace(rows[number], **changes)

    return breaking


def drop(stage: str, table: str, number: int) -> Break:
    def breaking(tables: dict[str, Tables]) -> None:
        del tables[stage][table][number]

    return breaking


def twice(tables: dict[str, Tables]) -> None:
    """The pivot's observation appears twice: the distilled trajectory has its turn 1 in two rows."""
    turns: list[Turn] = tables["distilled"]["turns"]
    turns.insert(1, turns[1])


WON, LOST = "iteration=0/task=0", "iteration=0/task=1"
# distilled turns: 0-2 of task 0 (pivot 1), 3-5 of task 1 (pivot 2). Row 0: base (masked before 1), 2: distilled, 4:
# retry.
BROKEN: dict[str, tuple[Break, str, str, str]] = {
    "guidance left in the pivot's context": (
        change("distilled", "turns", 1, context_ids=[101, 201, 301, 66, 67]),
        "1_guidance_absent",
        f"{WON}/distilled=0",
        "turn 1: its context is not that of its parent",
    ),
    "guidance after the pivot": (
        change("distilled", "turns", 2, context_ids=[102, 202, 302, 66]),
        "1_guidance_absent",
        f"{WON}/distilled=0",
        "turn 2: its context is not that of the retry",
    ),
    "an observation that quotes the reflection": (
        change("distilled", "turns", 5, observation="Hint: Clean the thing before you place it."),
        "1_guidance_absent",
        f"{LOST}/distilled=0",
        "turn 2: its observation quotes the reflection",
    ),
    "another reply in the prefix": (
        change("distilled", "turns", 0, response_ids=[5, 7]),
        "2_prefix",
        f"{WON}/distilled=0",
        "turn 0: its token ids are not those of its parent",
    ),
    "a prefix that lacks a turn": (
        drop("distilled", "turns", 4),
        "2_prefix",
        f"{LOST}/distilled=0",
        "turn 1: missing from the prefix",
    ),
    "a reply that was tokenised again": (
        change("distilled", "turns", 2, response_ids=[51002, 8]),
        "3_suffix",
        f"{WON}/distilled=0",
        "turn 2: its reply is not what the retry sampled",
    ),
    "the pivot's observation twice": (
        twice,
        "4_turns_once",
        f"{WON}/distilled=0",
        "turns 0..2 in 4 rows, expected 0..2",
    ),
    "a turn lost": (drop("base", "turns", 11), "4_turns_once", f"{LOST}/base=1", "turns 0..1 in 2 rows, expected 0..2"),
    "rolled back to another observation": (
        change("retries", "turns", 0, observation_hash="0" * 16),
        "5_rollback",
        f"{WON}/retry=0",
        "turn 1: not the observation that its parent had",
    ),
    "weight on an observation": (
        change("training_rows", "training_rows", 1, weights=[1.0] + [0.0] * 14, trained_tokens=1),
        "6_weights",
        f"{WON}/base=1/row",
        "weight on a token that was not sampled, or before turn 0",
    ),
    "weight before the pivot": (
        change("training_rows", "training_rows", 2, weights=[0, 0, 0, 1.0] + [0.0] * 11, trained_tokens=1),
        "6_weights",
        f"{WON}/distilled=0/row",
        "weight on a token that was not sampled, or before turn 1",
    ),
    "weights that are too short": (
        change("training_rows", "training_rows", 4, weights=[0.0] * 16, trained_tokens=0),
        "6_weights",
        f"{WON}/retry=0/row",
        "weights or logprobs are not aligned with token_ids",
    ),
    "other tokens than the source's": (
        change("training_rows", "training_rows", 3, token_ids=[9, 9, 9, 8, 7]),
        "6_weights",
        f"{WON}/base=0/reflection=0/row",
        f"its tokens are not those of {WON}/base=0/reflection=0",
    ),
    "a row of nobody": (
        change("training_rows", "training_rows", 3, source_id="nobody"),
        "6_weights",
        f"{WON}/base=0/reflection=0/row",
        "its source nobody is not stored",
    ),
    "a count that is wrong": (
        change("training_rows", "training_rows", 0, trained_tokens=5),
        "6_weights",
        f"{WON}/base=0/row",
        "trained_tokens is 5, weights say 4",
    ),
    "masked more than is shared": (
        change("credit", "credit", 0, mask_turn=2),
        "8_credit",
        f"{WON}/base=0",
        "masked before turn 2, shared with its pair before 1",
    ),
    "an advantage that is not its credit's": (
        change("training_rows", "training_rows", 1, advantage=2.0),
        "9_row_weights",
        f"{WON}/base=1/row",
        "advantage 2.0, its credit says 3.0",
    ),
    "a reflection that another policy wrote": (
        change("reflections", "reflections", 0, policy="p9"),
        "10_guidance_source",
        f"{WON}/base=0/reflection=0",
        "said to be the policy's own, and written by p9, where p0 played the retry",
    ),
    "an attempt that vanished": (
        drop("training_rows", "events", 0),
        "7_conservation",
        "base",
        "1 of 4 attempts are neither trained nor dropped with a reason",
    ),
    "a drop without a reason": (
        change("training_rows", "events", 4, reason=""),
        "7_conservation",
        "reflections",
        "1 of 4 attempts are neither trained nor dropped with a reason",
    ),
}


@pytest.fixture(scope="module", params=[query.MOST, 0], ids=["tables", "files"])
def found(tmp_path_factory, request) -> dict[str, list[Finding]]:
    """What is found in a run of each case, named as it is: of files that are read once, and of too many for that."""
    store = Store.open(str(tmp_path_factory.mktemp("broken")))
    for name, (breaking, *_) in BROKEN.items():
        tables = iteration_tables(0)
        breaking(tables)
        commit_iteration(store, run_of(name), tables=tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "MOST", request.param)
        return broken_rows(store, [run_of(name) for name in BROKEN])


def run_of(name: str) -> str:
    return re.sub(r"\W", "-", name)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_invariant_is_found_and_named(name: str, found):
    _, check, place, what = BROKEN[name]
    assert Finding(check, f"{run_of(name)} {place}", what) in found[run_of(name)]


def test_every_invariant_is_broken_by_some_case():
    by_hand, in_a_real_run = {check for _, check, _, _ in BROKEN.values()}, {check for _, check, _ in DEFECTS}
    assert by_hand | in_a_real_run >= set(INVARIANTS)  # a defect may be told by another check


def test_a_broken_branch_is_named_as_such(tmp_path, monkeypatch):
    store = Store.open(str(tmp_path))
    commit_iteration(store)
    tables = iteration_tables(0)["distilled"]
    tables["turns"][0] = replace(tables["turns"][0], response_ids=[5, 7])
    commit_stage(store, "distilled", tables, [], "demo", 0, branch="fork")
    found = check_run(store, "demo")
    assert ("2_prefix", f"demo/branch=fork {WON}/distilled=0") in [(f.check, f.place) for f in found]
    assert {f.place.split()[0] for f in found} == {"demo/branch=fork"}
    monkeypatch.setattr(query, "MOST", 0)
    assert check_run(store, "demo") == found


def test_files_are_read_once_unless_they_are_too_large_for_memory(tmp_path, monkeypatch):
    store = Store.open(str(tmp_path))
    commit_iteration(store)
    kind = "SELECT table_type FROM information_schema.tables WHERE (table_schema, table_name) = ('lines', 'turns')"
    for most, expected in ((query.MOST, "BASE TABLE"), (0, "VIEW")):
        monkeypatch.setattr(query, "MOST", most)
        with open_for_checks(store, load_manifests(store, ["demo"]))[0] as connection:
            assert connection.execute(kind).fetchall() == [(expected,)]


def test_an_unknown_run_is_named_with_those_that_exist(tmp_path):
    store = Store.open(str(tmp_path))
    with pytest.raises(StoreError, match=r"run 'demo': not in .*; it has no runs"):
        check_run(store, "demo")
    commit_iteration(store)
    with pytest.raises(StoreError, match="it has demo"):
        check_run(store, "dmo")


def broken_off(number: int) -> Break:
    """The first so many base trajectories ended as those of a run that was cancelled."""

    def breaking(tables: dict[str, Tables]) -> None:
        rows = tables["base"]["trajectories"]
        rows[:number] = [
            replace(one, status="engine_error", reason="the engine is closed", reward=0.0) for one in rows[:number]
        ]

    return breaking


def test_a_stage_of_attempts_that_were_broken_off_is_named(tmp_path) -> None:
    """4 of 4: as stores have it that were written before such attempts were refused; their manifests say nothing of
    it."""
    store, tables = Store.open(str(tmp_path)), iteration_tables(0)
    broken_off(4)(tables)
    commit_iteration(store, tables=tables)
    found = [finding for finding in check_run(store, "demo") if finding.check == "failed attempts"]
    what = (
        "4 of 4 attempts ended by errors of the engine or the environment; the first: engine_error: the engine is "
        "closed. Replay the iteration from base, or remove its folder and run it again"
    )
    assert [(finding.place, finding.what) for finding in found] == [("demo iteration=0/base", what)]


def test_a_stage_that_was_made_again_under_its_children_is_found(tmp_path):
    store = Store.open(str(tmp_path))
    refs = commit_iteration(store)
    rows = iteration_tables(0)["reflections"]
    rows["reflections"][0] = replace(rows["reflections"][0], outcome="failure", text="another")
    commit_stage(store, "reflections", rows, [refs["oracle_pivots"]], "demo", 0, again=True)
    assert [
        (one.place, "are not those that retries was made from" in one.what)
        for one in check_run(store, "demo")
        if one.check == "lineage"
    ] == [("demo/iteration=00000/retries/shard=000", True)]

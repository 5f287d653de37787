"""The paper's table of pivot accuracy: the views against an independent count, and against figures worked out by
hand."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from r3l.records import OraclePivot
from r3l.store.catalog import connect
from r3l.store.query import query
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, commit_stage, reflection, trajectory

Diagnosis = tuple[
    int, int, bool, bool | None
]  # asked, oracle, called a success, whether its retry won (None: no retry)


def counted(diagnoses: Sequence[Diagnosis]) -> dict[str, float | None]:
    """Agreement, kinds of diagnosis and wins by loops, as the paper words them."""
    kinds = {"accurate": 0, "partial": 0, "misdiagnosed": 0}
    right, wrong = [], []
    for asked, oracle, blind, won in diagnoses:
        off = abs(asked - oracle)
        kinds["misdiagnosed" if blind or off > 3 else "partial" if off else "accurate"] += 1
        (right if off <= 1 and not blind else wrong).append(won)
    tried = {name: [won for won in side if won is not None] for name, side in (("right", right), ("wrong", wrong))}
    shares = {name: part / len(diagnoses) for name, part in kinds.items()}
    wins = {f"won_if_{name}": sum(side) / len(side) if side else None for name, side in tried.items()}
    return {
        "reflections": len(diagnoses),
        "agreement": len(right) / len(diagnoses),
        **shares,
        **wins,
        **{f"retries_if_{name}": len(side) for name, side in tried.items()},
    }


def commit(store: Store, run: str, diagnoses: Sequence[Diagnosis]) -> None:
    """A base, a verdict and a reflection for each diagnosis, and a retry where it says how that ended."""
    bases, verdicts, reflections, retries = [], [], [], []
    for k, (asked, oracle, blind, won) in enumerate(diagnoses):
        base = f"iteration=0/task={k}/base=0"
        bases.append(replace(trajectory(base, "base", 0, k, 0, 0.0, 6), turns=30))
        verdicts.append(OraclePivot(base, 0, k, f"iteration=0/task={k}", oracle, "lost"))
        reflections.append(reflection(base, 0, k, "parsed", "success" if blind else "failure", asked, "retry"))
        if won is not None:
            links = {
                "base_id": base,
                "parent_id": base,
                "reflection_id": f"{base}/reflection=0",
                "pivot_asked": asked,
                "pivot_turn": asked,
            }
            retries.append(trajectory(f"{base}/retry=0", "retry", 0, k, 0, float(won), 6, **links))
    commit_stage(store, "base", {"trajectories": bases}, [], run, 0)
    commit_stage(store, "oracle_pivots", {"oracle_pivots": verdicts}, [], run, 0)
    commit_stage(store, "reflections", {"reflections": reflections}, [], run, 0)
    commit_stage(store, "retries", {"trajectories": retries}, [], run, 0)


def accuracy(store: Store, run: str) -> dict[str, float | None]:
    (row,) = query(connect(store, [run]), "SELECT * EXCLUDE (run, branch, iteration) FROM pivot_accuracy").to_pylist()
    return row


def test_the_shares_agree_with_a_count_by_hand(tmp_path):
    """Distances 0, 0, 1, 2, 3, 4, 9, 1 and a failure called a success at distance 0.

    Agreement 4 of 9, accurate 2, partial 4 (1, 2, 3, 1), misdiagnosed 3; of the agreeing ones three were retried and
    two won, of the others two were retried and none won.
    """
    store = Store.open(str(tmp_path))
    commit(
        store,
        "hand",
        [
            (5, 5, False, True), (0, 0, False, None), (3, 4, False, True), (6, 4, False, False), (1, 4, False, None),
            (8, 4, False, False), (0, 9, False, None), (5, 4, False, False), (2, 2, True, None),
        ],
    )  # fmt: skip
    assert accuracy(store, "hand") == {
        "reflections": 9, "agreement": pytest.approx(4 / 9), "accurate": pytest.approx(2 / 9),
        "partial": pytest.approx(4 / 9), "misdiagnosed": pytest.approx(3 / 9), "retries_if_right": 3,
        "won_if_right": pytest.approx(2 / 3), "retries_if_wrong": 2, "won_if_wrong": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_the_view_agrees_with_a_count_of_drawn_diagnoses(tmp_path, seed):
    rng = random.Random(seed)
    diagnoses = [
        (rng.randrange(12), rng.randrange(12), rng.random() < 0.2, rng.choice((True, False, None))) for _ in range(80)
    ]
    store = Store.open(str(tmp_path))
    commit(store, "drawn", diagnoses)
    found = accuracy(store, "drawn")
    expected = counted(diagnoses)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected)


def test_what_was_not_judged_or_not_read_counts_for_nothing(tmp_path):
    """Of the hand-made iteration: pivot 1 where the oracle says 1, won; pivot 2 where it says 0, lost; one reply that
    can't be read."""
    store = Store.open(str(tmp_path))
    commit_iteration(store)
    found = accuracy(store, "demo")
    assert [found[name] for name in ("reflections", "accurate", "partial", "won_if_right", "won_if_wrong")] == [
        2, 0.5, 0.5, 1.0, 0.0,
    ]  # fmt: skip


def test_a_broken_retry_says_nothing_about_its_pivot(tmp_path):
    store = Store.open(str(tmp_path))
    commit(store, "broken", [(1, 1, False, False), (2, 2, False, True)])
    rows = store.read(next(ref for ref in store.stages("broken") if ref.stage == "retries"), "trajectories").to_pylist()
    changed = [row | {"status": "environment_error" if row["task"] == 0 else row["status"]} for row in rows]
    commit_stage(store, "retries", {"trajectories": changed}, [], "broken", 0, again=True)
    found = accuracy(store, "broken")
    assert (found["retries_if_right"], found["won_if_right"]) == (1, 1.0)

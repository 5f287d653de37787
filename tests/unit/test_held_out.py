"""Figures over iterations are of one benchmark in one form: `held_out`, and all that is made of it."""

from pathlib import Path

import pytest

from r3l.audit.lines import Line, iterations
from r3l.audit.reader import Reader
from r3l.audit.tasks import HEAT
from r3l.intervals import difference
from r3l.store.index import blocks
from r3l.store.stage import Store
from tests.support.store_iteration import commit_evaluation, commit_iteration


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three iterations: all on 10 tasks of one benchmark, the second first on another, the last on 8 tasks, too."""
    store = Store.open(str(tmp_path))
    for iteration in range(3):
        commit_iteration(store, iteration=iteration)
    commit_evaluation(store, 0, 0, "household/heldout", 10, 2)
    commit_evaluation(store, 1, 0, "alfworld/heldout", 10, 10)
    commit_evaluation(store, 1, 1, "household/heldout", 10, 4)
    commit_evaluation(store, 2, 0, "household/heldout", 8, 8)
    commit_evaluation(store, 2, 1, "household/heldout", 10, 6)
    return store


def test_held_out_success_is_of_one_benchmark_in_one_form(store: Store) -> None:
    reader = Reader(store)
    sql = "SELECT iteration, evaluation_success, evaluated FROM lines.iterations ORDER BY iteration"
    found = [tuple(row.values()) for row in reader.rows(sql, [])]
    assert found == [(0, 0.2, 10), (1, 0.4, 10), (2, 0.6, 10)]
    heat = reader.rows(HEAT, ["demo", "", "evaluation"])
    assert [(row["task_type"], row["iteration"], row["attempts"]) for row in heat] == [
        ("household/heldout", iteration, 10) for iteration in range(3)
    ]
    reader.close()


def test_a_difference_of_two_rates_has_an_interval() -> None:
    low, high = difference((0.5, 32), (0.3125, 32))
    # Wilson: 16 of 32 is in 0.336 to 0.664, 10 of 32 in 0.180 to 0.486; 0.1875 - hypot(0.164, 0.173) = -0.051
    assert (round(low, 3), round(high, 3)) == (-0.051, 0.398)
    wide, _ = difference((0.5, 8), (0.3125, 8))
    assert wide < low < 0.1875 < high


@pytest.mark.parametrize("block", [1, 25])
def test_the_newest_iterations_are_on_the_terms_that_most_of_the_run_was_evaluated_on(store, monkeypatch, block):
    monkeypatch.setattr(blocks, "BLOCK", block)
    whole, newest = (iterations(Reader(store, ["demo"], newest=count), Line("demo")) for count in (None, 1))
    assert newest == whole[-1:]
    assert newest[0]["evaluation_success"] == 0.6

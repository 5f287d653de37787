"""The views over credit give the figures of r3l.credit, and those counted by hand from
tests/support/store_iteration.py."""

import math

import pytest

from r3l.credit.dominance import dominance, variance_ratio
from r3l.store.catalog import connect
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, iteration_tables


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(store)
    return connect(store)


def test_the_view_dominance_agrees_with_the_python_function(connection):
    found = connection.sql("SELECT * FROM dominance").to_arrow_table().to_pylist()[0]
    credit = iteration_tables(0)["credit"]["credit"]
    plain, amplified = dominance([c.scaled for c in credit]), dominance([c.advantage for c in credit])
    for name in ("positive_share", "positive_mean", "negative_mean", "alpha_min"):
        assert found[name] == pytest.approx(getattr(plain, name)), name
    assert found["dominance"] == pytest.approx(amplified.ratio)
    # by hand: rewards 0 1 1, std .57735: scaled -1.1547 .57735 .57735; the second group is all zero
    assert found["positive_share"] == pytest.approx(2 / 3)
    assert found["alpha_min"] == pytest.approx(1)
    assert found["dominance"] == pytest.approx(6 / (2 / 3 / math.sqrt(1 / 3)))
    # rows of 4, 6 and 4 trained tokens; each trajectory sampled 6
    assert found["variance_ratio"] == pytest.approx(14 / 18) == variance_ratio([4, 6, 4], [6, 6, 6])


def test_confusion_counts_what_was_said_against_what_was(connection):
    rows = connection.execute("SELECT said, solved, reflections, correct FROM confusion ORDER BY ALL").fetchall()
    assert rows == [("failure", False, 2, True), ("invalid", False, 1, None), ("success", True, 1, True)]


def test_the_view_iterations_has_the_figures_of_credit(connection):
    columns = (
        "positive_share, alpha_min, variance_ratio, outcome_accuracy, reward_gain_relative, clip_fraction, "
        "reference_tokens"
    )
    (row,) = connection.execute(f"SELECT {columns} FROM iterations").fetchall()
    # both retried bases got 0, so the relative gain has no denominator
    assert row == (pytest.approx(2 / 3), pytest.approx(1), pytest.approx(14 / 18), 1.0, None, 0.0, 0)

"""The views over credit give the figures counted by hand from tests/support/store_iteration.py."""

import math

import pytest

from r3l.store.catalog import connect
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(store)
    return connect(store)


def test_the_view_dominance_agrees_with_theorems_4_3_and_4_5(connection):
    found = connection.sql("SELECT * FROM dominance").to_arrow_table().to_pylist()[0]
    # rewards 0 1 1, std .57735: scaled -1.1547 .57735 .57735; the second group is all zero
    assert found["positive_share"] == pytest.approx(2 / 3)
    assert found["positive_mean"] == pytest.approx(1 / 3 / math.sqrt(1 / 3))
    assert found["negative_mean"] == pytest.approx(-2 / 3 / math.sqrt(1 / 3))
    assert found["alpha_min"] == pytest.approx((1 / 3 * 2) / (2 / 3))  # (1 - p) |mean A-| / (p mean A+)
    assert found["dominance"] == pytest.approx(6 / (2 / 3 / math.sqrt(1 / 3)))
    # rows of 4, 6 and 4 trained tokens; each trajectory sampled 6
    assert found["variance_ratio"] == pytest.approx(14 / 18)


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

"""An attempt that a table can't hold becomes an event; the other attempts of its shard are committed."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from r3l.errors import StoreError
from r3l.records import Event
from r3l.store.layout import StageKey
from r3l.store.stage import Store
from r3l.store.tables.parts import to_array
from tests.support.store_iteration import iteration_tables

BASE, REFLECTIONS = StageKey("demo", "", 7, "base", 0), StageKey("demo", "", 7, "reflections", 0)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(str(tmp_path))


def test_a_reflection_beyond_32_bits_is_an_event_and_the_rest_is_stored(store):
    [bad, *others] = iteration_tables(7)["reflections"]["reflections"]
    rows = [replace(bad, pivot_asked=9_999_999_999, text="half a pair \ud800"), *others]
    ref = store.commit(REFLECTIONS, {"reflections": rows}, fingerprint="f")
    assert store.read(ref, "reflections", ["reflection_id"]).to_pylist() == [
        {"reflection_id": row.reflection_id} for row in others
    ]
    [event] = store.read(ref, "events").to_pylist()
    assert (event["iteration"], event["stage"], event["subject_id"], event["event"]) == (
        7,
        "reflections",
        bad.reflection_id,
        "unstorable",
    )
    assert event["reason"].startswith("its row of reflections can't be stored: text: ")
    assert "; pivot_asked: " in event["reason"]
    assert event["detail"] == "text = half a pair \\ud800; pivot_asked = 9999999999"
    assert store.find(REFLECTIONS, "f") == ref


def test_an_attempt_goes_with_all_its_turns(store):
    tables = iteration_tables(7)["base"]
    bad = tables["turns"][1]
    turns = [replace(one, response_ids=[2**31]) if one is bad else one for one in tables["turns"]]
    ref = store.commit(BASE, {"trajectories": tables["trajectories"], "turns": turns}, fingerprint="f")
    others = {row.trajectory_id for row in tables["trajectories"]} - {bad.trajectory_id}
    assert len(others) == 3
    for table in ("trajectories", "turns"):
        assert {row["trajectory_id"] for row in store.read(ref, table, ["trajectory_id"]).to_pylist()} == others
    assert [row["subject_id"] for row in store.read(ref, "events").to_pylist()] == [bad.trajectory_id]


def test_an_event_that_can_not_be_stored_is_an_event_and_its_attempt_stays(store):
    tables = iteration_tables(7)["base"]
    trajectory_id = tables["trajectories"][0].trajectory_id
    events = [
        Event(7, "base", trajectory_id, "worker_restarted", "it said \ud800"),
        Event(7, "base", trajectory_id, "worker_restarted", "again"),
    ]
    ref = store.commit(BASE, tables | {"events": events}, fingerprint="f")
    assert store.read(ref, "trajectories").num_rows == len(tables["trajectories"])
    found = [(row["event"], row["detail"]) for row in store.read(ref, "events").to_pylist()]
    assert found == [("worker_restarted", ""), ("unstorable", "reason = it said \\ud800")]


def test_a_shard_of_one_is_committed_without_rows(store):
    [row, *_] = iteration_tables(7)["reflections"]["reflections"]
    ref = store.commit(REFLECTIONS, {"reflections": [replace(row, pivot_asked=10**5_000)]}, fingerprint="f")
    assert store.read(ref, "reflections").num_rows == 0
    assert store.read(ref, "events", ["detail"]).to_pylist() == [{"detail": "pivot_asked = an integer of 16610 bits"}]


def test_where_no_row_fits_the_program_is_wrong(store):
    rows = [replace(row, pivot_asked="three") for row in iteration_tables(7)["reflections"]["reflections"]]
    with pytest.raises(StoreError, match="table reflections: rows don't fit its columns"):
        store.commit(REFLECTIONS, {"reflections": rows}, fingerprint="f")


def test_stages_that_sample_nothing_lose_no_row(store):
    [row, *others] = iteration_tables(7)["credit"]["credit"]
    with pytest.raises(StoreError, match="table credit: rows don't fit its columns"):
        store.commit(
            StageKey("demo", "", 7, "credit", 0), {"credit": [replace(row, mask_turn=2**40), *others]}, fingerprint="f"
        )


@pytest.mark.parametrize(("values", "type_"), [
    ([[1, -(2**31)], [], [2**31 - 1]], pa.int32()),
    ([[0.1, -2], [], [float("nan"), float("-inf")]], pa.float32()),
    ([None, [0.5], [None]], pa.float32()),  # no array of Python's holds null
    ([np.arange(3), (4,)], pa.int32()),  # no lists
    ([["a"]], pa.string()),
])  # fmt: skip
def test_a_column_of_lists_is_what_pyarrow_makes_of_it(values, type_):
    column = to_array(values, pa.list_(type_))
    column.validate(full=True)
    assert str(column) == str(pa.array(values, pa.list_(type_)))
    assert column.type == pa.list_(type_)


def test_a_number_that_does_not_fit_is_named():
    with pytest.raises(pa.ArrowInvalid, match="2147483648"):
        to_array([[1], [2**31]], pa.list_(pa.int32()))

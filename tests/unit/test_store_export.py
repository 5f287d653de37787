"""A run as one nested file holds what its tables hold."""

import json

import pyarrow.parquet as pq
import pytest

from r3l.errors import StoreError
from r3l.store.exports.run_file import export_run
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

WON = "iteration=0/task=0/distilled=0"


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store.open(str(tmp_path / "runs"))
    commit_iteration(store)
    return store


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_everything_about_a_trajectory_is_in_its_row(store, tmp_path, ending):
    path = tmp_path / f"demo.{ending}"
    assert export_run(store, "demo", path) == 8
    rows = (
        pq.read_table(path).to_pylist()
        if ending == "parquet"
        else [json.loads(line) for line in path.read_text().splitlines()]
    )
    assert [row["trajectory_id"] for row in rows] == sorted(row["trajectory_id"] for row in rows)
    by_id = {row["trajectory_id"]: row for row in rows}
    won = by_id[WON]
    assert [turn["response_ids"] for turn in won["turn_list"]] == [[1000, 7], [51001, 7], [51002, 7]]
    assert (won["run"], won["branch"], won["reward"], won["pivot_turn"]) == ("demo", "", 1.0, 1)
    assert (won["credit"]["rule"], won["credit"]["advantage"]) == ("top", 3.0)
    assert [sum(row["weights"]) for row in won["training_row_list"]] == [4.0]
    base = by_id["iteration=0/task=0/base=0"]
    assert [(f["outcome"], f["pivot_turn"]) for f in base["reflection_list"]] == [("failure", 1)]
    assert by_id["iteration=0/task=0/retry=0"]["credit"] is None
    assert not list(tmp_path.glob(".*"))


def test_a_file_that_can_not_be_made_is_named(store, tmp_path):
    with pytest.raises(StoreError, match=r"demo\.csv: expected a name that ends in \.parquet or \.jsonl$"):
        export_run(store, "demo", tmp_path / "demo.csv")
    with pytest.raises(StoreError, match=r"run 'dmo': not in .*; it has demo"):
        export_run(store, "dmo", tmp_path / "demo.parquet")
    with pytest.raises(StoreError, match="can't be written"):
        export_run(store, "demo", tmp_path / "nowhere" / "demo.parquet")

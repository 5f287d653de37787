"""A run as a data set of the hub: its files hold the tables' rows, and its card and metadata name no other columns."""

import json
import re
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from r3l.errors import StoreError
from r3l.store.catalog import connect
from r3l.store.exports import hub_dataset
from r3l.store.exports.hub_dataset import export_to_hub
from r3l.store.stage import Store

SAMPLE = Path(__file__).parents[2] / "data" / "sample_run"


def test_each_table_is_a_file_that_card_and_metadata_describe(tmp_path):
    store, folder = Store.open(str(SAMPLE), reading=True), tmp_path / "new" / "sample"
    rows = export_to_hub(store, "sample", folder)
    assert {path.stem for path in folder.glob("*.parquet")} == set(rows) >= {"tasks", "turns", "credit", "updates"}
    card, about = (folder / "README.md").read_text(), json.loads((folder / "croissant.json").read_text())
    assert re.findall(r"config_name: (\w+)\n  data_files: (\w+)\.parquet", card) == [(name, name) for name in rows]
    assert about["@context"]["@language"] == "en"  # mlcroissant reads no file without it
    words = {
        word
        for one in about["recordSet"]
        for part in (one, one["field"][0], one["field"][0]["source"])
        for word in part
    }
    assert words - about["@context"].keys() == {"@type", "@id", "name", "description"}  # which schema.org has
    files = {one["@id"]: one["sha256"] for one in about["distribution"]}
    sets = {one["name"]: [field["source"]["extract"]["column"] for field in one["field"]] for one in about["recordSet"]}
    with connect(store, ["sample"]) as connection:
        for table, number in rows.items():
            file = folder / f"{table}.parquet"
            assert files[file.name] == sha256(file.read_bytes()).hexdigest()
            assert sorted(pq.read_schema(file).names) == sorted(sets[table])
            stored = connection.execute(f"SELECT count(*) FROM stored.{table}").fetchone()
            assert stored == (number,) == (pq.read_metadata(file).num_rows,)
    assert str(tmp_path) not in card + json.dumps(about)
    with pytest.raises(StoreError, match="has files already"):
        export_to_hub(store, "sample", folder)
    with pytest.raises(StoreError, match="nobody"):
        export_to_hub(store, "nobody", tmp_path / "other")


def test_an_export_is_there_whole_or_not_at_all_and_is_no_store_here(tmp_path, monkeypatch):
    store, folder = Store.open(str(SAMPLE), reading=True), tmp_path / "sample"
    folder.mkdir()

    def full(*_: object) -> str:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(hub_dataset, "card", full)
        with pytest.raises(StoreError, match="No space left"):
            export_to_hub(store, "sample", folder)
    assert list(tmp_path.rglob("*")) == [folder]
    export_to_hub(store, "sample", folder)
    with pytest.raises(StoreError, match="an export of a run, which is asked where a web server has it"):
        Store.open(str(folder), reading=True)  # it holds no run's folder, so that every answer would be empty

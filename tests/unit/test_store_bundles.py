"""Bundles answer every question as the stages do, go when a stage changes, and are held against the stages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from r3l.store.catalog import TRAJECTORIES_OF, VIEWS, connect
from r3l.store.check import check_run
from r3l.store.space.compaction import compact
from r3l.store.space.retention import prune_run
from r3l.store.stage import Store
from r3l.store.tables.schemas import TABLES
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables

FOLDERS = ["demo/.bundles/00000-00001", "demo/.bundles/00002-00003"]


@pytest.fixture
def store(tmp_path) -> Store:
    """Five finished iterations, a branch of iteration 1, and a sixth iteration just begun."""
    store = Store.open(str(tmp_path))
    for iteration in range(5):
        commit_iteration(store, iteration=iteration)
    commit_stage(
        store, "credit", iteration_tables(1)["credit"], store.stages("demo", iteration=1)[4:5], "demo", 1, branch="fork"
    )
    commit_stage(store, "tasks", iteration_tables(5)["tasks"], [], "demo", 5)
    return store


def answers(store: Store) -> dict[str, list[str]]:
    """Every table and view, as sorted rows."""
    connection = connect(store)
    names = [*TABLES, *VIEWS, "stages", *(f"lines.{table}" for table in (*TABLES, *TRAJECTORIES_OF))]
    return {name: sorted(map(str, connection.execute(f"SELECT * FROM {name}").fetchall())) for name in names}


def opened(store: Store) -> list[str]:
    return [
        path.removeprefix(f"{store.root}/")
        for (path,) in connect(store).execute("SELECT path FROM files ORDER BY path").fetchall()
    ]


@pytest.mark.slow
def test_a_bundled_run_answers_as_before(store):
    before = answers(store)
    assert all(before[name] for name in ("turns", "pivots", "iterations", "lines.credit"))
    assert compact(store, "demo", iterations=2) == FOLDERS
    assert answers(store) == before
    assert compact(store, "demo", iterations=2) == []
    assert check_run(store, "demo") == []


def test_its_files_take_the_place_of_the_stages(store):
    compact(store, "demo", iterations=2)
    files = opened(store)
    assert sum(path.startswith("demo/.bundles/") for path in files) == 2 * 13
    loose = {path.split("/")[1] for path in files if not path.startswith("demo/.bundles/")}
    # iteration 1 is read for the branch, which took over what came before its credit
    assert loose == {"branch=fork", "iteration=00001", "iteration=00004", "iteration=00005"}


def test_it_goes_when_one_of_its_stages_changes(store):
    compact(store, "demo", iterations=2)
    commit_stage(store, "evaluations", {"events": []}, [], "demo", 1)
    assert [path.parent.name for path in Path(store.root).rglob("bundle.json")] == ["00002-00003"]
    assert [path for path in opened(store) if "00000-00001" in path] == []
    prune_run(store, "demo", keep_last=1)
    assert not list(Path(store.root).rglob("bundle.json"))
    assert check_run(store, "demo") == []


@pytest.mark.slow
def test_a_damaged_one_is_named_and_not_used(store, caplog):
    before = answers(store)
    compact(store, "demo", iterations=2)
    file = sorted(Path(store.root, FOLDERS[0]).glob("base-*"))[0]
    sound = file.read_bytes()
    file.write_bytes(sound[:-1])
    assert answers(store) == before
    assert f"{file.name} is missing or was cut" in caplog.text
    file.write_bytes(sound[:40] + bytes([sound[40] ^ 1]) + sound[41:])
    assert [(found.check, found.place) for found in check_run(store, "demo")] == [("bundles", FOLDERS[0])]
    file.write_bytes(sound)
    index = Path(store.root, FOLDERS[0], "bundle.json")
    index.write_text(json.dumps(json.loads(index.read_text()) | {"versions": {}}))
    assert answers(store) == before
    assert "its index was changed" in caplog.text


def test_one_that_is_not_what_its_stages_are_is_found(store):
    """Someone exchanged a stage behind the store's back."""
    compact(store, "demo", iterations=2)
    path = Path(store.root, store.stages("demo", iteration=0)[0].key.manifest)
    path.unlink()
    assert ("bundles", FOLDERS[0]) in {(found.check, found.place) for found in check_run(store, "demo")}

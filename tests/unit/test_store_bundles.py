"""A long run: what a question reads of it, what a commit makes stale, and what a check reads a second time."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from r3l.judge.verdict import Checked
from r3l.store import catalog, check, damage, sweep
from r3l.store.catalog import connect
from r3l.store.index import blocks as index
from r3l.store.index import bundles
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

ITERATIONS = 7
BASES = "SELECT run, branch, iteration, shard, base_id, reward FROM base ORDER BY ALL"


@pytest.fixture(scope="module", autouse=True)
def whole(tmp_path_factory) -> Iterator[Store]:
    """Blocks of two iterations: 0 and 1, 2 and 3, 4 and 5 are left behind. For tests that change nothing."""
    root = tmp_path_factory.mktemp("whole")
    store = Store.open(str(root / "runs"))
    for iteration in range(ITERATIONS):
        commit_iteration(store, iteration=iteration)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R3L_CACHE", str(root / "cache"))
        patch.setattr(index, "BLOCK", 2)
        patch.setattr(index, "UNSETTLED_NS", 0)
        patch.setattr(bundles, "BLOCK", 2)
        patch.setattr(bundles, "FEWEST", 2)
        yield store


@pytest.fixture
def store(whole, tmp_path, monkeypatch) -> Store:
    """A copy of which no index is made yet."""
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    return Store.open(str(shutil.copytree(whole.root, tmp_path / "runs")))


def files_of(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [path for (path,) in connection.execute("SELECT unnest(current_setting('allowed_paths'))").fetchall()]


def asked(store: Store, question: str = BASES, **how) -> tuple[list[tuple], list[str]]:
    with connect(store, question=question, **how) as connection:
        return connection.execute(question).fetchall(), files_of(connection)


def test_a_question_opens_a_bundle_for_each_block_left_behind(store):
    rows, files = asked(store)
    assert len(rows) == ITERATIONS * 4
    # bases and retries: a bundle of each for three blocks, and the two files of the newest iteration
    assert (len(files), sum(path.startswith(store.root) for path in files)) == (3 * 2 + 2, 2)
    assert asked(store, verify=True)[0] == rows
    assert all(path.startswith(store.root) for path in asked(store, verify=True)[1])


@pytest.mark.parametrize("table", ["turns", "credit", "training_rows", "events", "updates", "stages", "iterations"])
def test_a_bundle_has_the_rows_of_its_files(whole, table):
    question = f"FROM {table} ORDER BY ALL"
    assert asked(whole, question)[0] == asked(whole, question, verify=True)[0]


def test_a_bundle_is_written_once_and_anew_where_it_is_another(store, monkeypatch):
    rows, files = asked(store)
    written: list[Path] = []
    write = bundles.write
    monkeypatch.setattr(bundles, "write", lambda store, parts, path: written.append(path) or write(store, parts, path))
    asked(store)
    assert written == []
    damaged = Path(next(path for path in files if not path.startswith(store.root)))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert asked(store)[0] == rows
    assert written == [damaged]
    commit_iteration(store, iteration=ITERATIONS)
    commit_iteration(store, iteration=ITERATIONS + 1)
    asked(store)
    assert len(written) == 1 + 2  # of the block that the run has just left, of bases and of retries


def test_a_few_iterations_of_the_newest_block_are_bundled_when_they_are_all_there(store, monkeypatch):
    monkeypatch.setattr(bundles, "BLOCK", 100)
    monkeypatch.setattr(bundles, "FEW", 2)

    def spans() -> list[str]:
        rows, files = asked(store)
        assert rows == asked(store, verify=True)[0]
        return sorted(Path(path).name.split("~")[1] for path in files if not path.startswith(store.root))

    assert spans() == [*["0.0"] * 2, *["0.1"] * 2, *["0.2"] * 2]  # of bases and of retries
    commit_iteration(store, iteration=ITERATIONS)
    assert spans() == [*["0.0"] * 2, *["0.1"] * 2, *["0.2"] * 2, *["0.3"] * 2]


def test_the_bundles_of_a_few_iterations_go_when_their_block_is_left_behind(store, tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "FEW", 2)
    rows, their_spans = {}, {}
    for block in (100, 4):  # iterations
        monkeypatch.setattr(bundles, "BLOCK", block)
        rows[block] = asked(store)[0]
        paths = list(Path(tmp_path, "cache").rglob("*~base~*.parquet"))
        their_spans[block] = sorted(path.name.split("~")[1] for path in paths)
        for path in paths:
            os.utime(path, (0, time.time() - 2 * bundles.UNUSED_S))
    assert rows[4] == rows[100]
    assert their_spans == {100: ["0.0", "0.1", "0.2"], 4: ["0", "1.2"]}


def test_a_commit_makes_one_block_stale_and_no_manifest_of_another_is_read(store, monkeypatch):
    asked(store)
    read: list[str] = []
    load = index.manifests.load
    monkeypatch.setattr(index.manifests, "load", lambda files, key: read.append(key.manifest) or load(files, key))
    asked(store)
    assert read == []
    commit_iteration(store, iteration=ITERATIONS)
    read.clear()
    asked(store)
    assert {path.split("/")[1] for path in read} == {"iteration=00006", "iteration=00007"}


def test_a_check_reads_again_what_changed_and_what_comes_after_it(store, monkeypatch):
    read: list[str] = []
    verify = damage.verify
    monkeypatch.setattr(damage, "verify", lambda store, key: read.append(key.folder) or verify(store, key))

    def iterations_read(everything: bool = False) -> list[int]:
        read.clear()
        checked = Checked(store, "demo", "checked", everything)
        assert check.check_run(store, "demo", checked.blocks) == []
        checked.found_sound()
        return sorted({int(folder.split("/")[1].removeprefix("iteration=")) for folder in read})

    assert iterations_read() == list(range(ITERATIONS))
    assert iterations_read() == []
    commit_iteration(store, iteration=ITERATIONS)
    assert iterations_read() == [6, 7]
    assert iterations_read(everything=True) == list(range(ITERATIONS + 1))
    part = next(Path(store.root, "demo/iteration=00002/credit").rglob("part-*"))
    content = part.read_bytes()
    part.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    checked = Checked(store, "demo", "checked", everything=False)
    assert [block.name for block in checked.blocks] == ["1", "2", "3"]
    assert {finding.check for finding in check.check_run(store, "demo", checked.blocks)} == {"files"}


def test_the_next_iteration_is_found_without_listing_the_run(store, monkeypatch):
    monkeypatch.setattr(type(store.files), "paths", lambda files, prefix: pytest.fail(f"{prefix} was listed"))
    assert store.next_iteration("demo") == ITERATIONS


def test_a_sweep_parses_only_manifests_beside_which_a_part_lies_that_they_do_not_name(store, monkeypatch):
    parsed: list[str] = []
    unseal = sweep.manifests.unseal
    monkeypatch.setattr(
        sweep.manifests, "unseal", lambda content, key: parsed.append(key.folder) or unseal(content, key)
    )
    folder = Path(store.root, "demo/iteration=00003/credit/shard=000")
    (folder / "part-credit-0123456789ab.parquet").write_bytes(b"of a writer that died")
    with store.writer_lock("demo", "", 3):
        assert store.sweep("demo") == ["demo/iteration=00003/credit/shard=000/part-credit-0123456789ab.parquet"]
    assert set(parsed) == {"demo/iteration=00003/credit/shard=000"}


def test_a_question_about_no_table_reads_all_of_the_index(store):
    assert catalog.stages_read(catalog.names_needed("FROM left_out")) is None
    assert catalog.stages_read(catalog.names_needed(BASES)) == {"base", "retries"}


@pytest.fixture
def many(tmp_path, monkeypatch) -> Store:
    """Five runs of one iteration, of which the last was written just now."""
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bundles, "MANY", 5)
    store = Store.open(str(tmp_path / "runs"))
    for run in ("a", "b", "c", "d", "e"):
        commit_iteration(store, run)
    for path in Path(store.root).glob("[abcd]/**/*"):
        os.utime(path, (0, 0))
    return store


def test_a_question_about_many_runs_opens_bundles_of_those_that_rest(many):
    rows, files = asked(many)
    assert {run for run, *_ in rows} == {"a", "b", "c", "d", "e"}
    in_the_store = [path.removeprefix(many.root)[:3] for path in files if path.startswith(many.root)]
    assert set(in_the_store) == {"/e/"}
    assert len(files) - len(in_the_store) == 2  # bases and retries
    assert asked(many, verify=True)[0] == rows
    whole = asked(many, "FROM iterations ORDER BY ALL")[0]
    assert asked(many, "FROM iterations ORDER BY ALL", verify=True)[0] == whole


def test_a_question_about_few_runs_opens_their_own_files(many):
    asked(many)
    _, files = asked(many, runs=["a", "b"])
    assert all(path.startswith(many.root) for path in files)


def test_a_run_that_wakes_is_read_from_its_files(many):
    asked(many)
    commit_iteration(many, "a", iteration=1)
    rows, files = asked(many)
    assert len([run for run, *_ in rows if run == "a"]) == 2 * len([run for run, *_ in rows if run == "b"])
    assert any(path.startswith(f"{many.root}/a/") for path in files)
    assert not any(path.startswith(f"{many.root}/b/") for path in files)

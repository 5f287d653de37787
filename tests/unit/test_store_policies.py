"""A snapshot is used only while its files are those that its update wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from r3l.errors import StoreError
from r3l.store.check import check_run
from r3l.store.policies import snapshot_digest
from r3l.store.policy_places import fetch_policy
from r3l.store.stage import Store
from tests.store_iteration import commit_iteration, iteration_tables


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One iteration and the snapshot that it names."""
    folder = tmp_path / "demo" / "policies" / "iteration=00000"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    tables = iteration_tables(0)
    tables["updates"]["updates"][0]["policy"] = snapshot_digest(folder)
    store = Store.open(str(tmp_path))
    commit_iteration(store, tables=tables)
    return store


def test_a_snapshot_as_it_was_written_is_given_out(store: Store) -> None:
    folder = Path(store.root, "demo/policies/iteration=00000")
    assert fetch_policy(store, "demo/policies/iteration=00000", snapshot_digest(folder)) == folder
    assert check_run(store, "demo") == []


@pytest.mark.parametrize(("content", "wrong"), [(b"weightz", "holds [0-9a-f]{16}"), (None, "holds no weights")])
def test_one_that_was_changed_or_lost_is_named(store: Store, content: bytes | None, wrong: str) -> None:
    folder = Path(store.root, "demo/policies/iteration=00000")
    digest = snapshot_digest(folder)
    file = folder / "model.safetensors"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(StoreError, match=f"policy demo/policies/iteration=00000 in .*: {wrong}, .*only its update is taken anew"):
        fetch_policy(store, "demo/policies/iteration=00000", digest)
    assert [(finding.check, finding.place) for finding in check_run(store, "demo")] == [("policies", "demo/policies/iteration=00000")]


def test_a_run_whose_policies_were_taken_away_is_still_a_sound_store(store: Store) -> None:
    (Path(store.root, "demo/policies")).rename(Path(store.root, "elsewhere"))
    assert check_run(store, "demo") == []

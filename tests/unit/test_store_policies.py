"""A snapshot is used only while its files are those that its update wrote."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from r3l.errors import StoreError
from r3l.store.check import check_run
from r3l.store.policies.places import fetch_policy
from r3l.store.policies.snapshots import cut_weights, snapshot_digest
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, iteration_tables


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
    with pytest.raises(
        StoreError, match=f"policy demo/policies/iteration=00000 in .*: {wrong}, .*only its update is computed again"
    ):
        fetch_policy(store, "demo/policies/iteration=00000", digest)
    assert [(finding.check, finding.place) for finding in check_run(store, "demo")] == [
        ("policies", "demo/policies/iteration=00000")
    ]


@pytest.mark.parametrize("name", [
    "model-00002-of-00002.safetensors", "config.json", "generation_config.json", "adapter_config.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "vocab.txt", "merges.txt",
    "spiece.model", "chat_template.jinja", "chat_template.json",
])  # fmt: skip
def test_all_that_decides_what_a_policy_says_is_in_its_digest(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    without = snapshot_digest(tmp_path)
    (tmp_path / name).write_bytes(b"a")
    first = snapshot_digest(tmp_path)
    (tmp_path / name).write_bytes(b"b")
    assert len({without, first, snapshot_digest(tmp_path)}) == 3


@pytest.mark.parametrize("name", ["optimizer.safetensors", "README.md", "update.json", "stderr.log"])
def test_what_decides_nothing_is_not(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    without = snapshot_digest(tmp_path)
    (tmp_path / name).write_bytes(b"a")
    assert snapshot_digest(tmp_path) == without


def test_a_run_whose_policies_were_taken_away_is_still_a_sound_store(store: Store) -> None:
    (Path(store.root, "demo/policies")).rename(Path(store.root, "elsewhere"))
    assert check_run(store, "demo") == []


def test_weights_that_are_cut_are_seen_by_header_and_length(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"weights": np.zeros((10, 10), np.float32)}, file)
    whole = file.read_bytes()
    assert cut_weights(tmp_path) == ""
    for content in (
        whole[:-1],
        whole + b"x",
        whole[:30],
        whole[:7],
        b"",
        b"version https://git-lfs.github.com/spec/v1\n",
    ):
        file.write_bytes(content)
        assert cut_weights(tmp_path).startswith(f"model.safetensors has {len(content)} bytes and is cut or damaged (")


def test_so_is_an_index_that_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    save_file({"a": np.zeros(4, np.float32)}, tmp_path / "model-1.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    assert cut_weights(tmp_path) == "model-2.safetensors is missing, which model.safetensors.index.json names"
    index.write_text("[]")
    assert cut_weights(tmp_path).startswith("model.safetensors.index.json is damaged (")

"""Policy snapshots: their digests, and the one that a run continues from."""

import json
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from r3l.errors import StoreError
from r3l.store import manifest as manifests
from r3l.store.files.stamps import content_digest
from r3l.store.layout import StageKey, StageRef, line_folder
from r3l.store.stage import Store

# Whatever decides what a policy says: weights, architecture, adapters, tokenizer, template. Not optimiser state or
# notes.
IDENTITY = (
    "*.safetensors",
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer*.json",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "*.model",
    "chat_template.*",
)

BESIDE = (
    "*.safetensors.index.json",
    "added_tokens.json",
    "README.md",
)  # in a policy's folder, and no part of its digest

TOKENIZER = (
    "tokenizer*",
    "*.jinja",
    "*.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
)


def tokenizer_files(folder: Path) -> list[Path]:
    """List the files of tokenizer and chat template in a policy's folder."""
    return sorted({file for pattern in TOKENIZER for file in folder.glob(pattern) if file.is_file()})


def snapshot_digest(folder: Path | str, verify: bool = False) -> str:
    """Hash a snapshot's content to 16 hex digits, with `verify` its bytes as they are now. Raise StoreError where the
    folder holds no weights."""
    folder = Path(folder)
    files = {path for pattern in IDENTITY for path in folder.glob(pattern)}
    paths = sorted(path for path in files if path.is_file() and not path.name.startswith("optimizer"))
    if not any(path.suffix == ".safetensors" for path in paths):
        raise StoreError(f"policy folder {folder}: no *.safetensors in it; expected a saved transformers or peft model")
    return content_digest(paths, verify)


def cut_weights(folder: Path | str) -> str:
    """Say what is wrong with the weights of a folder by their headers and lengths, in words; empty where they are
    whole.

    A download that broke off leaves a file shorter than its header says, or a file of the index out.
    """
    folder = Path(folder)
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            return f"{path.name} has {path.stat().st_size:,} bytes and is cut or damaged ({error})"
    index = folder / "model.safetensors.index.json"
    try:
        file_names = set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else set()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{index.name} is damaged ({error!r})"
    missing = sorted(name for name in file_names if not (folder / name).is_file())
    return f"{missing[0]} is missing, which {index.name} names" if missing else ""


def optimiser_digest(folder: Path | str, verify: bool = False) -> str:
    """Hash an optimiser's state, moments and counts of steps, to 16 hex digits; empty where there is none."""
    paths = sorted(path for path in Path(folder).glob("*") if path.is_file())
    return content_digest(paths, verify) if paths else ""


class Written(NamedTuple):
    """What an update wrote: the policy's folder relative to the store's root, its digest, and that of the optimiser's
    state beside it (empty: no step was taken so far; None: an earlier version of the code did not note it)."""

    place: str
    policy: str
    optimiser: str | None
    step: int = 0  # optimiser steps that the run has taken

    @property
    def optimiser_place(self) -> str:
        return f"{self.place.rpartition('/')[0]}/optimizer"


def latest_policy(store: Store, run: str, branch: str = "", before_iteration: int | None = None) -> Written | None:
    """Find the newest snapshot made before an iteration; None: none was made.

    A branch without an earlier update of its own goes on from the run's.
    """
    last = store.next_iteration(run, branch) if before_iteration is None else before_iteration
    for line in dict.fromkeys((branch, "")):
        for iteration in range(last - 1, -1, -1):
            key = StageKey(run, line, iteration, "updates")
            if manifest := manifests.load(store.files, key):
                return read_update(store, manifests.reference(manifest))
    return None


def read_update(store: Store, ref: StageRef) -> Written:
    """Read what a stored update wrote."""
    row = store.read(ref, "updates", ["path", "policy", "optimiser", "step"]).to_pylist()[-1]
    return Written(f"{line_folder(ref.run, ref.branch)}/{row['path']}", row["policy"], row["optimiser"], row["step"])

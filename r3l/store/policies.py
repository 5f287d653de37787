"""Policy snapshots: what names them, and which one a run goes on from."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from r3l.errors import StoreError
from r3l.store import manifest as manifests
from r3l.store.layout import StageKey, line_folder
from r3l.store.stage import Store

# Whatever decides what a policy says: weights, architecture, adapters, tokenizer, template. Not optimiser state or notes.
IDENTITY = ("*.safetensors", "config.json", "generation_config.json", "adapter_config.json", "tokenizer*.json", "special_tokens_map.json",
            "vocab.*", "merges.txt", "*.model", "chat_template.*")  # fmt: skip


def snapshot_digest(folder: Path | str) -> str:
    """16 hex digits that name a snapshot's content. Raises StoreError where the folder holds no weights."""
    folder = Path(folder)
    found = {path for pattern in IDENTITY for path in folder.glob(pattern)}
    paths = sorted(path for path in found if path.is_file() and not path.name.startswith("optimizer"))
    if not any(path.suffix == ".safetensors" for path in paths):
        raise StoreError(f"policy folder {folder}: no *.safetensors in it; expected a saved transformers or peft model")
    running = sha256()
    for path in paths:
        running.update(f"{path.name}:{path.stat().st_size};".encode())
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                running.update(chunk)
    return running.hexdigest()[:16]


def latest_policy(store: Store, run: str, branch: str = "", before_iteration: int | None = None) -> tuple[str, str] | None:
    """(folder relative to the store's root, digest) of the newest snapshot made before an iteration; None: none was made.

    A branch without an earlier update of its own goes on from the run's.
    """
    last = store.next_iteration(run, branch) if before_iteration is None else before_iteration
    for line in dict.fromkeys((branch, "")):
        for iteration in range(last - 1, -1, -1):
            key = StageKey(run, line, iteration, "updates")
            if manifest := manifests.load(store.files, key):
                row = store.read(manifests.reference(manifest), "updates", ["path", "policy"]).to_pylist()[-1]
                return f"{line_folder(run, line)}/{row['path']}", row["policy"]
    return None

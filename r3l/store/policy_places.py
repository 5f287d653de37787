"""Policies between hosts: a place in the store that any host can pull from, and a pulled copy that is what its digest says."""

from __future__ import annotations

import shutil
from pathlib import Path

from r3l.errors import StoreError
from r3l.store.policies import IDENTITY, snapshot_digest
from r3l.store.stage import Store

SHARED = ".policies"


def stored_place(store: Store, path: Path | str, digest: str | None = None) -> str:
    """Where the folder lies, relative to the store's root. A policy from outside (the starting one) is put there, under its digest."""
    folder = Path(path).absolute()
    if folder.is_relative_to(store.files.cache):
        return folder.relative_to(store.files.cache).as_posix()
    return share_policy(store, folder, digest or snapshot_digest(folder))


def share_policy(store: Store, folder: Path, digest: str) -> str:
    """Put a policy into the store, once. A marker beside it, written last, says that it is whole."""
    place = f"{SHARED}/{digest}"
    if store.files.read(f"{place}.whole") is None:
        copy = store.files.cache / place
        partial = copy.with_name(f"{digest}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(folder, partial)
        shutil.rmtree(copy, ignore_errors=True)
        partial.rename(copy)
        store.publish(place)
        store.files.put(f"{place}.whole", digest.encode())
    return place


def share_tokenizer(store: Store, folder: Path | str, digest: str) -> str:
    """Put what of a policy is not weights into the store, once: all that a host needs which samples from servers."""
    place = tokenizer_place(digest)
    if store.files.read(f"{place}.whole") is None:
        for path in {path for pattern in IDENTITY for path in Path(folder).glob(pattern) if path.suffix != ".safetensors"}:
            store.files.put(f"{place}/{path.name}", path.read_bytes())
        store.files.put(f"{place}.whole", digest.encode())
    return place


def fetch_tokenizer(store: Store, digest: str) -> Path:
    """The same as a folder of this host. Raises `StoreError` where nobody has put it there."""
    if store.files.read(f"{tokenizer_place(digest)}.whole") is None:
        raise StoreError(f"tokenizer of policy {digest}: not in {store.root}; run the iteration again, its flow puts it there")
    return store.local(tokenizer_place(digest))


def tokenizer_place(digest: str) -> str:
    return f"{SHARED}/{digest}.tokenizer"


def fetch_policy(store: Store, place: str, digest: str) -> Path:
    """A policy of the store as a folder of this host, checked against its digest.

    A copy that is another snapshot, as after an iteration was made again elsewhere, is fetched anew.

    Raises:
        StoreError: what the store has there is not that policy.
    """
    got = ""
    for _ in range(2):
        folder = store.local(place)
        got = held(folder)
        if got == digest:
            return folder
        store.files.forget(place.removesuffix("/policy"))  # what lies beside it, the optimiser's state, is of the same earlier try
    raise StoreError(f"policy {place} in {store.root}: holds {got}, expected {digest}; run the iteration that wrote it again "
                     "(r3l iterate --iteration ...): only its update is taken anew")


def held(folder: Path) -> str:
    """The digest of the snapshot in a folder; in words where there is none."""
    try:
        return snapshot_digest(folder)
    except StoreError:
        return "no weights"

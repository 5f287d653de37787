"""Policies between hosts: a place in the store that any host can pull from, and a pulled copy that is verified by its
digest."""

import errno
import shutil
from contextlib import suppress
from pathlib import Path

from r3l.errors import StoreError
from r3l.store.files.staging import staging_name
from r3l.store.layout import STAGING
from r3l.store.policies.snapshots import IDENTITY, optimiser_digest, snapshot_digest
from r3l.store.stage import Store

SHARED = ".policies"


def place_in_store(store: Store, path: Path | str, digest: str | None = None) -> str:
    """Find where the folder lies, relative to the store's root. A policy from outside (the starting one) is put there,
    under its digest."""
    folder = Path(path).absolute()
    if folder.is_relative_to(store.files.cache):
        return folder.relative_to(store.files.cache).as_posix()
    return share_policy(store, folder, digest or snapshot_digest(folder))


def share_policy(store: Store, folder: Path, digest: str) -> str:
    """Put a policy into the store once, even if several processes try at the same time. A marker beside it, written
    last, says that it is whole."""
    place = f"{SHARED}/{digest}"
    if store.files.read(f"{place}.whole") is None:
        partial = store.files.cache / STAGING / staging_name("policy")
        shutil.copytree(folder, partial)
        put_first(partial, store.files.cache / place, digest)
        store.publish(place)
        store.files.put(f"{place}.whole", digest.encode())
    return place


def put_first(partial: Path, final: Path, digest: str) -> None:
    """Rename the copy of a policy to its place, unless another starter put that policy there first.

    What is at the place and is not that policy, such as half a download, gives way.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            partial.rename(final)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if digest_in(final) == digest:
            shutil.rmtree(partial)
            return
        with suppress(FileNotFoundError):  # another starter has moved it away
            other = final.rename(partial.with_name(staging_name("policy")))
            shutil.rmtree(other)


def share_tokenizer(store: Store, folder: Path | str, digest: str) -> str:
    """Put the files of a policy other than weights into the store once: a host that samples from servers needs only
    these."""
    place = tokenizer_place(digest)
    if store.files.read(f"{place}.whole") is None:
        for path in {
            path for pattern in IDENTITY for path in Path(folder).glob(pattern) if path.suffix != ".safetensors"
        }:
            store.files.put(f"{place}/{path.name}", path.read_bytes())
        store.files.put(f"{place}.whole", digest.encode())
    return place


def fetch_tokenizer(store: Store, digest: str) -> Path:
    """Fetch the same as a folder of this host. Raise `StoreError` where nobody has put it there."""
    if store.files.read(f"{tokenizer_place(digest)}.whole") is None:
        raise StoreError(
            f"tokenizer of policy {digest}: not in {store.root}; run the iteration again, its flow puts it there"
        )
    return store.local(tokenizer_place(digest))


def tokenizer_place(digest: str) -> str:
    return f"{SHARED}/{digest}.tokenizer"


def fetch_policy(store: Store, place: str, digest: str, verify: bool = False) -> Path:
    """Fetch a policy of the store as a folder of this host, checked against its digest: with `verify` by its bytes.

    A copy that is another snapshot, as after an iteration was made again elsewhere, is fetched anew.

    Raises:
        StoreError: what the store has there is not that policy.
    """
    digest_there = ""
    for _ in range(2):
        folder = store.local(place)
        digest_there = digest_in(folder, verify)
        if digest_there == digest:
            return folder
        # what lies beside it, the optimiser's state, is of the same earlier try
        store.files.forget(place.removesuffix("/policy"))
    raise StoreError(
        f"policy {place} in {store.root}: holds {digest_there}, expected {digest}; run the iteration that wrote it "
        "again (r3l iterate --iteration ...): only its update is computed again"
    )


def fetch_optimiser(store: Store, place: str, digest: str | None, verify: bool = False) -> Path | None:
    """Fetch the optimiser's state of the store as a folder of this host, checked against its digest; None where no step
    was taken so far.

    Where an earlier version of the code noted no digest (None), what is there is taken.

    Raises:
        StoreError: the state is missing, or is not what its update wrote.
    """
    digest_there = ""
    for _ in range(2):
        folder = store.local(place)
        digest_there = optimiser_digest(folder, verify)
        if digest is None or digest_there == digest:
            return folder if digest_there else None
        store.files.forget(place)
    raise StoreError(
        f"optimiser's state {place} in {store.root}: holds {digest_there or 'nothing'}, expected "
        f"{digest or 'nothing'}, so the next step would differ. Put the folder back from a copy, or run the iteration "
        "that wrote it again (r3l iterate --iteration ...): only its update is computed again"
    )


def digest_in(folder: Path, verify: bool = False) -> str:
    """Hash the snapshot in a folder; in words where there is none."""
    try:
        return snapshot_digest(folder, verify)
    except StoreError:
        return "no weights"

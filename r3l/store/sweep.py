"""Leftovers of dead writers, found by their writer and not by their age alone."""

from collections.abc import Iterable

from r3l.errors import StoreError
from r3l.store import manifest as manifests
from r3l.store.files.local import Files
from r3l.store.files.lock import LOCK, held, held_by_me
from r3l.store.layout import MANIFEST, StageKey, key_of


def sweep(files: Files, run: str) -> list[str]:
    """Delete staged files of dead processes, and the run's parts that no manifest names. The result is what was
    deleted.

    A part without a manifest may belong to a writer at work: an iteration that another process holds is left alone, and
    one that nobody holds is held while it is swept.
    """
    paths_deleted = files.sweep_staging()
    for folder, orphans in by_iteration(orphaned(files, run)).items():
        lock = f"{folder}/{LOCK}"
        # this process itself holds the iteration: nobody else can be writing its parts
        if held_by_me(files, lock):
            paths_deleted += delete(files, orphans)
            continue
        try:
            with held(files, lock):
                # listed again under the lock: since the first look a writer may have committed some of them
                paths_deleted += delete(files, [path for path in orphaned(files, folder) if path in orphans])
        except StoreError:
            continue  # its writer is at work, and sweeps for itself at its next start
    return paths_deleted


def orphaned(files: Files, prefix: str) -> list[str]:
    """List the parts that no readable manifest names. A stage whose manifest can't be read keeps its parts: they are
    evidence."""
    parts = [path for path in files.paths(prefix) if is_part(path)]
    manifest_parts: set[str] = set()
    evidence: set[str] = set()
    for folder in {path.rpartition("/")[0] for path in parts}:
        if key := key_of(f"{folder}/{MANIFEST}"):
            try:
                manifest = manifests.load(files, key)
                manifest_parts |= {f"{key.folder}/{part['file']}" for part in (manifest["parts"] if manifest else ())}
            except StoreError:  # also where a folder stands in the place of the manifest
                evidence.add(key.folder)
    return [path for path in parts if path not in manifest_parts and path.rpartition("/")[0] not in evidence]


def withdraw(files: Files, key: StageKey) -> None:
    """Delete a committed stage: its manifest first, so that it is never there in part, then its parts. The caller holds
    the iteration's lock."""
    files.delete(key.manifest)
    delete(files, [path for path in files.paths(key.folder) if is_part(path) and path.rpartition("/")[0] == key.folder])


def is_part(path: str) -> bool:
    """Tell whether a path is a part of a stage (and no other file that the run's folder holds)."""
    folder, _, name = path.rpartition("/")
    return name.startswith("part-") and name.endswith(".parquet") and key_of(f"{folder}/{MANIFEST}") is not None


def by_iteration(paths: Iterable[str]) -> dict[str, list[str]]:
    """Sort paths by their iteration's folder."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        head, _, rest = path.partition("/iteration=")
        folders.setdefault(f"{head}/iteration={rest.partition('/')[0]}", []).append(path)
    return folders


def delete(files: Files, paths: Iterable[str]) -> list[str]:
    paths = list(paths)
    for path in paths:
        files.delete(path)
    return paths

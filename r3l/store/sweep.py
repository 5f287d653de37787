"""Leftovers of dead writers, found by their writer and not by their age alone."""

from collections.abc import Iterable

from r3l.errors import StoreError
from r3l.store import manifest as manifests
from r3l.store.files.local import Files
from r3l.store.files.lock import LOCK, held_by_me, hold
from r3l.store.layout import MANIFEST, StageKey, key_of


def sweep(files: Files, run: str) -> list[str]:
    """Delete staged files of dead processes, and the parts that no manifest names, of iterations in which a lock
    stands: this process's own, and those whose writer died. A long run is not read for them. The result is what was
    deleted.

    A part without a manifest may belong to a writer at work: an iteration that another process holds is left alone, and
    one whose holder is dead is held while it is swept.
    """
    paths_deleted = files.sweep_staging()
    for lock in files.in_iterations(run, LOCK):
        folder = lock.removesuffix(f"/{LOCK}")
        if not (orphans := find_orphans(files, folder)):
            continue
        # this process itself holds the iteration: nobody else can be writing its parts
        if held_by_me(files, lock):
            paths_deleted += delete(files, orphans)
            continue
        try:
            with hold(files, lock):
                # listed again under the lock: since the first look a writer may have committed some of them
                paths_deleted += delete(files, [path for path in find_orphans(files, folder) if path in orphans])
        except StoreError:
            continue  # its writer is at work, and sweeps for itself at its next start
    return paths_deleted


def find_orphans(files: Files, prefix: str) -> list[str]:
    """List the parts that no readable manifest names. A stage whose manifest can't be read keeps its parts: they are
    evidence."""
    parts: dict[str, list[str]] = {}
    for path in files.paths(prefix):
        if is_part(path):
            parts.setdefault(path.rpartition("/")[0], []).append(path)
    return [path for folder, paths in parts.items() for path in unnamed(files, f"{folder}/{MANIFEST}", paths)]


def unnamed(files: Files, manifest: str, parts: list[str]) -> list[str]:
    key = key_of(manifest)
    assert key, f"{manifest}: of no stage"  # as `is_part` says
    try:
        content = files.read(manifest)
        if content is None:
            return parts
        # Nearly always every part is named: seen in the text, thousands of manifests needn't be parsed.
        if all(path.rpartition("/")[2].encode() in content for path in parts):
            return []
        named = {f"{key.folder}/{part['file']}" for part in manifests.unseal(content, key)["parts"]}
    except StoreError:  # also where a folder stands in the place of the manifest
        return []
    return [path for path in parts if path not in named]


def withdraw(files: Files, key: StageKey) -> None:
    """Delete a committed stage: its manifest first, so that it is never there in part, then its parts. The caller holds
    the iteration's lock."""
    files.delete(key.manifest)
    delete(files, [path for path in files.paths(key.folder) if is_part(path) and path.rpartition("/")[0] == key.folder])


def is_part(path: str) -> bool:
    """Tell whether a path is a part of a stage (and no other file that the run's folder holds)."""
    folder, _, name = path.rpartition("/")
    return name.startswith("part-") and name.endswith(".parquet") and key_of(f"{folder}/{MANIFEST}") is not None


def delete(files: Files, paths: Iterable[str]) -> list[str]:
    paths = list(paths)
    for path in paths:
        files.delete(path)
    return paths

"""The index of a run: its contents, cached on this machine with the size, time and inode of each file.

The index is never the truth. It is used while every folder and file is as it was when their bytes were verified; a
stale, torn or foreign one is made anew from the manifests, and only files that are new or changed are read and hashed.
It lies under R3L_CACHE, else ~/.cache/r3l, so that a store that can only be read has one too; any of it may be deleted.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

from r3l.errors import StoreError
from r3l.store import manifest as manifests
from r3l.store.contents import Contents, Part, contents_of
from r3l.store.digests import canonical
from r3l.store.files.local import LocalFiles, cache_folder, replace_text
from r3l.store.files.stamps import UNSETTLED_NS, Stamp, stamp_of
from r3l.store.layout import MANIFEST, StageKey, key_of
from r3l.store.manifest import Manifest, NamedFile
from r3l.store.stage import Store
from r3l.store.tables.parts import only_value
from r3l.store.tables.schemas import VERSIONS

FORMAT = 4
log = logging.getLogger("r3l.store")


@dataclass(frozen=True, slots=True)
class Indexed:
    """A run's contents, which are read when they are asked for; `state` names them: another where a stage was
    committed, made again or pruned. `damage`: the stages that are left out, each with the reason."""

    run: str
    state: str
    read: Callable[[], Contents]
    damage: dict[str, str] = field(default_factory=dict)

    @property
    def contents(self) -> Contents:
        return self.read()


def indexed(store: Store, run: str, verify: bool = False) -> Indexed:
    """Index what the run holds, every file verified: by its bytes once on this machine (with `verify`, now), then by
    its stamp.

    A stage of which a file is missing, or is not what it was when it was committed, is left out and named.

    Raises:
        StoreError: no stage of the run is sound.
    """
    path = index_path(store, run)
    cache, contents = recalled(path, run)
    if cache and not verify and unchanged(store.root, cache):
        return Indexed(run, cache["state"], lambda: contents_from(contents))
    index = made(store, run, path, {} if verify or not cache else cache["files"])
    # A stage may have been made again between its manifest and its files.
    return made(store, run, path, {}) if index.damage else index


def made(store: Store, run: str, path: Path, known: dict[str, Stamp]) -> Indexed:
    """Read the run, verify the files that `known` lacks, and cache the result if all of it is sound. Raise StoreError
    where none is."""
    local = isinstance(store.files, LocalFiles)
    # stamps that are not older than this moment may be those of a file that is still being written
    began = time.time_ns()
    # before the files: a stage that is committed meanwhile changes its folder, and the index counts as stale
    folders = dict(folder_stamps(store.root, run)) if local else {}
    stages, damage = manifests_of(store, run)
    sizes, stamps = {} if local else store.files.sizes(run), dict[str, Stamp]()
    for manifest in list(stages):
        file_of = dict(named_files([manifest]))
        try:
            if local:
                stamps |= {name: verified(store, name, entry, known.get(name)) for name, entry in file_of.items()}
            else:
                verify_sizes(sizes, file_of)
        # one damaged stage is left out by name, and the others of the run stay readable
        except (StoreError, OSError) as error:
            stages.remove(manifest)
            damage[manifests.reference(manifest).key.folder] = str(error)
    if damage and not stages:
        raise StoreError(next(iter(damage.values())))
    identity = [*sorted(one["checksum"] for one in stages), *sorted(damage.items())]
    state = blake2b(canonical(identity), digest_size=16).hexdigest()
    contents = contents_of(stages)
    if not local:
        return Indexed(run, state, lambda: contents, damage)
    contents = replace(
        contents, own=with_kinds(store.root, contents.own), taken_over=with_kinds(store.root, contents.taken_over)
    )
    newest = max([*folders.values(), *(stamp[1] for stamp in stamps.values())], default=0)
    # A run that has no folder yet has no stamp that could change: it is looked for each time.
    if folders and not damage and newest < began - UNSETTLED_NS:
        remember(path, {"run": run, "state": state, "folders": folders, "files": stamps}, asdict(contents))
    return Indexed(run, state, lambda: contents, damage)


def with_kinds(root: str, parts: list[Part]) -> list[Part]:
    """Mark the files of retries with their kind: most have no extra base, and a question about bases needn't open
    them."""
    return [
        part._replace(kind=only_value(f"{root}/{part.path}", "kind"))
        if (part.stage, part.table) == ("retries", "trajectories")
        else part
        for part in parts
    ]


def manifests_of(store: Store, run: str) -> tuple[list[Manifest], dict[str, str]]:
    """Load the manifests of a run and its branches, and say what is wrong with the others: damaged, of a place that is
    none, or gone while what was made of them stayed."""
    sound: dict[StageKey, Manifest] = {}
    damage: dict[str, str] = {}
    for path in store.files.paths(run):
        key = key_of(path)
        try:
            if key and (manifest := manifests.load(store.files, key)):
                sound[key] = manifest
            elif key is None and path.endswith(f"/{MANIFEST}"):
                damage[path.removesuffix(f"/{MANIFEST}")] = f"{path}: of no stage that this code knows"
        except (StoreError, OSError) as error:
            damage[key.folder if key else path] = str(error)
    for manifest in sound.values():
        for parent in manifest["parents"]:
            key = manifests.reference(parent).key
            if key not in sound and key.run == run:
                damage.setdefault(key.folder, f"{key.manifest}: missing, though {manifest['stage']} was made from it")
    return list(sound.values()), damage


def load_all(store: Store, folders: list[str]) -> Iterator[Manifest]:
    """Yield every manifest under these folders."""
    for folder in folders:
        for path in store.files.paths(folder):
            if (key := key_of(path)) and (manifest := manifests.load(store.files, key)):
                yield manifest


def named_files(stages: list[Manifest]) -> Iterator[tuple[str, NamedFile | None]]:
    """Yield every file that is read, with its bytes and sha256; None for files with a checksum of their own, such as
    manifests."""
    for manifest in stages:
        key = manifests.reference(manifest).key
        yield key.manifest, None
        yield from ((f"{key.folder}/{part['file']}", part) for part in manifest["parts"])


def verify_sizes(sizes: Mapping[str, int], named: dict[str, NamedFile | None]) -> None:
    """Check that each file exists with its full size, for stores whose files have no stamps. Raises StoreError for the
    first that is not."""
    for name, entry in named.items():
        if entry is not None and sizes.get(name) != entry["bytes"]:
            raise StoreError(f"{name}: {sizes.get(name, 'no')} bytes, the manifest says {entry['bytes']}")


def verified(store: Store, name: str, entry: NamedFile | None, known: Stamp | None) -> Stamp:
    """Verify a file's bytes where its stamp is new; the result is the stamp. Raise StoreError where the bytes are
    others."""
    stamp = stamp_of(f"{store.root}/{name}")
    if entry is not None and (stamp is None or stamp != known):
        manifests.read_verified(store.files, name, entry)
    if stamp is None:
        raise StoreError(f"{name}: missing, although the index lists it; run the iteration again to make it again")
    return stamp


def unchanged(root: str, known: dict[str, Any]) -> bool:
    """Tell whether the run was there, and every folder and file of the index is unchanged."""
    try:
        return (
            # a new stage makes a new entry in a folder, so that the folder's time tells of it: no file has to be listed
            bool(known["folders"])
            and all(os.stat(f"{root}/{name}").st_mtime_ns == when for name, when in known["folders"].items())
            and all(stamp_of(f"{root}/{name}") == stamp for name, stamp in known["files"].items())
        )
    except OSError:
        return False


def folder_stamps(root: str, run: str) -> Iterator[tuple[str, int]]:
    """Yield every folder of the run in which a stage can appear."""
    for folder, folders, _ in os.walk(f"{root}/{run}"):
        folders[:] = [name for name in folders if name != "policies" and not name.startswith(".")]
        yield os.path.relpath(folder, root), os.stat(folder).st_mtime_ns


def index_path(store: Store, run: str, kind: str = "index") -> Path:
    """Name the path of a run's cached index or figures."""
    return cache_folder() / kind / sha256(store.root.encode()).hexdigest()[:16] / f"{run}.json"


def recall(path: Path, run: str) -> dict[str, Any] | None:
    """Read what is cached of a run; None if there is nothing, it is incomplete, or another version made it."""
    return recalled(path, run)[0]


def recalled(path: Path, run: str) -> tuple[dict[str, Any] | None, bytes]:
    """Read the same, and the second part of what was remembered, not parsed: most questions don't need it."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        # the checksum comes first: a torn file, or one of another format, is no index
        if head != head_of(body):
            return None, b""
        first, _, second = body.partition(b"\n")
        content: dict[str, Any] = json.loads(first)
    except (OSError, ValueError):
        return None, b""
    return (content, second) if content["run"] == run else (None, b"")


def contents_from(cached: bytes) -> Contents:
    """Parse the contents that `remember` was given as its second part."""
    contents = json.loads(cached)
    parts = {name: [Part(*part) for part in contents[name]] for name in ("own", "taken_over")}
    return Contents(contents["stages"], contents["seen"], **parts)


def remember(path: Path, *parts: dict[str, Any]) -> None:
    """Write the cache atomically, each part on a line. If it cannot be written, the next reader repeats the work."""
    body = "\n".join(json.dumps(part, separators=(",", ":")) for part in parts)
    try:
        replace_text(path, f"{head_of(body.encode()).decode()}\n{body}")
    except OSError as error:
        log.debug("%s: not written (%s)", path, error)


def head_of(body: bytes) -> bytes:
    versions = canonical([FORMAT, VERSIONS])
    return blake2b(versions + body, digest_size=16).hexdigest().encode()

"""The index of a run: its contents, cached on this machine with the size, time and inode of each file.

The index is never the truth. It is used while every folder and file is as it was when their bytes were verified; a
stale, torn or foreign one is made anew from the manifests, and only files that are new or changed are read and hashed.
It lies under R3L_CACHE, else ~/.cache/r3l, so that a store that can only be read has one too; any of it may be deleted.

It has a file for each block of iterations, and one for all branches together: a commit makes one of them stale. Of each
file, a question reads the lines of the stages that it asks for.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from r3l.errors import StoreError
from r3l.store import manifest as manifests
from r3l.store.digests import canonical
from r3l.store.files.local import LocalFiles
from r3l.store.files.stamps import UNSETTLED_NS, Stamp, stamp_of
from r3l.store.files.web import WebFiles
from r3l.store.index.cached import contents_from, index_path, lines_at, lines_of, parsed, recalled, remember, untorn
from r3l.store.index.contents import Contents, Part, contents_of
from r3l.store.index.exported import exported
from r3l.store.layout import ITERATION, MANIFEST, SETTINGS, StageKey, key_of
from r3l.store.manifest import Manifest, NamedFile
from r3l.store.stage import Store
from r3l.store.tables.parts import only_value

BLOCK = 25  # iterations
BRANCHES = "branches"  # the block that all of them share
EVALUATIONS = frozenset({"evaluations"})


class Block(NamedTuple):
    """Folders of a run that are indexed together. `beside`: folders that branches of it were forked from."""

    name: str
    folders: list[str]
    beside: list[str]

    @property
    def last(self) -> int | None:
        """Find its last iteration; None for a block of other folders, such as all branches."""
        return None if self.name in ("", BRANCHES) else int(self.folders[-1].rpartition("=")[2])


@dataclass(frozen=True, slots=True)
class Indexed:
    """A run's contents (or a block's), which are read when they are asked for; `state` names them: another where a
    stage was committed, made again or pruned. `damage`: the stages that are left out, each with the reason. `sound`:
    whether any stage is left. `kept`: the stamp of the file of a block that is cached. `stages`: those that a block
    has."""

    run: str
    state: str
    read: Callable[[], Contents]
    damage: dict[str, str]
    sound: bool
    kept: Stamp | None = None
    stages: frozenset[str] = frozenset()

    @property
    def contents(self) -> Contents:
        return self.read()


def index_run(
    store: Store,
    run: str,
    verify: bool = False,
    stages: Collection[str] | None = None,
    newest: int | None = None,
    wide: bool = True,
    at: int | None = None,
) -> Indexed:
    """Return what the run holds, every file verified: by its bytes once on this machine (with `verify`, now), then by
    its stamp.

    A stage of which a file is missing, or is not what it was when it was committed, is left out and named.

    Args:
        stages: read these alone, without their rows of the view `stages`, and look at no other stage's files.
        newest: read of the run itself no earlier block than these newest iterations lie in, but for evaluations: all of
            them decide which can be compared (None: all).
        wide: read every column of the view `stages`, and not only those that other views read.
        at: read of the run itself only the block in which this iteration lies (None: all).

    Raises:
        StoreError: no stage of the run is sound.
    """
    if isinstance(store.files, WebFiles):
        return Indexed(run, "", partial(exported, store.files, verify), {}, sound=True)
    blocks = [*blocks_of(store, run, at)]
    numbered = [block.last for block in blocks if block.last is not None]
    before = -2 if newest is None else max(numbered, default=0) - newest
    some = [
        indexed_block(
            store, run, block, verify, EVALUATIONS if block.last is not None and block.last <= before else stages, wide
        )
        for block in blocks
    ]
    damage = {folder: why for one in some for folder, why in one.damage.items()}
    if damage and not any(one.sound for one in some):
        raise StoreError(next(iter(damage.values())))
    if len(some) == 1:
        return some[0]
    state = blake2b(canonical([one.state for one in some]), digest_size=16).hexdigest()
    return Indexed(run, state, partial(together, some), damage, sound=True)


def together(some: Iterable[Indexed]) -> Contents:
    """Read the contents of several blocks, or runs, as one."""
    contents = Contents()
    for one in some:
        contents.add(one.contents)
    return contents


def blocks_of(store: Store, run: str, at: int | None = None) -> Iterator[Block]:
    """Yield the blocks of a run, its branches last: what they took over lies in iterations that they share with it. A
    store without stamps is not cached, and listed at once."""
    if not isinstance(store.files, LocalFiles):
        yield Block("", [run], [])
        return
    folders: dict[int, list[str]] = {}
    others: list[str] = []
    for name in store.files.folders(run):
        if match := ITERATION.fullmatch(name):
            folders.setdefault(int(match[1]) // BLOCK, []).append(f"{run}/{name}")
        elif name != "policies":
            others.append(f"{run}/{name}")
    for number in sorted(folders):
        if at is None or number == at // BLOCK:
            yield Block(str(number), folders[number], [])
    if others:
        shared = {f"{run}/{name}" for folder in others for name in store.files.folders(folder)}
        own = [folder for block in folders.values() for folder in block]
        yield Block(BRANCHES, others, [folder for folder in own if folder in shared])


def indexed_block(
    store: Store,
    run: str,
    block: Block,
    verify: bool = False,
    stages: Collection[str] | None = None,
    wide: bool = True,
) -> Indexed:
    """Read a block of the index: as it is cached, or made anew where it is stale. Arguments as of `index_run`."""
    path = index_path(store, run).with_suffix("") / f"{block.name}.json"
    head = recalled(path)
    of = [*block.folders, *block.beside]
    if head and not verify and (head["run"], head["of"]) == (run, of):
        places = [place for place, stage in enumerate(head["stages"]) if stages is None or stage in stages]
        count = len(head["stages"])
        ends = range(count, count + (2 if wide else 1) if stages is None else count)
        lines = lines_at(path, head["sizes"], [*places, *ends])
        kept, rows = [content for line in lines[: len(places)] if (content := parsed(line))], lines[len(places) :]
        whole = (len(kept), len(rows)) == (len(places), len(ends)) and all(map(untorn, rows))
        if whole and is_unchanged(store.root, head, kept):
            contents, there = partial(contents_from, kept, rows), frozenset(head["stages"])
            return Indexed(run, head["state"], contents, {}, bool(there), stamp_of(path), there)
    old = lines_at(path, head["sizes"], range(len(head["stages"]))) if head and not verify else []
    known = {name: stamp for line in old for name, stamp in (parsed(line) or {"files": {}})["files"].items()}
    index = build_index(store, run, block, path, known)
    if index.damage:  # a stage may have been made again between its manifest and its files
        index = build_index(store, run, block, path, {})
    if stages is not None:
        return replace(index, read=lambda: index.contents.of(stages))
    return index if wide else replace(index, read=lambda: index.contents.narrow())


def build_index(store: Store, run: str, block: Block, path: Path, known: dict[str, Stamp]) -> Indexed:
    """Read a block, verify the files that `known` lacks, and cache the result if all of it is sound."""
    local = isinstance(store.files, LocalFiles)
    # stamps that are not older than this moment may be those of a file that is still being written
    began = time.time_ns()
    of = [*block.folders, *block.beside]
    folders = {name: when for folder in of for name, when in folder_stamps(store.root, folder)} if local else {}
    stages, damage = manifests_of(store, run, of)
    sizes, stamps = {} if local else store.files.sizes(run), dict[str, dict[str, Stamp]]()
    for manifest in list(stages):
        file_of = dict(named_files([manifest]))
        try:
            if local:
                seen = {name: verify_file(store, name, entry, known.get(name)) for name, entry in file_of.items()}
                stamps.setdefault(manifest["stage"], {}).update(seen)
            else:
                # for stores whose files have no stamps
                for name, entry in file_of.items():
                    if entry is not None and sizes.get(name) != entry["bytes"]:
                        raise StoreError(f"{name}: {sizes.get(name, 'no')} bytes, the manifest says {entry['bytes']}")
        # one damaged stage is left out by name, and the others of the run stay readable
        except (StoreError, OSError) as error:
            stages.remove(manifest)
            damage[manifests.reference(manifest).key.folder] = str(error)
    identity = [*sorted(one["checksum"] for one in stages), *sorted(damage.items())]
    state = blake2b(canonical(identity), digest_size=16).hexdigest()
    contents, there = contents_of(stages, block.beside), frozenset(one["stage"] for one in stages)
    if not local:
        return Indexed(run, state, lambda: contents, damage, bool(stages), stages=there)
    contents = replace(
        contents, own=with_kinds(store.root, contents.own), taken_over=with_kinds(store.root, contents.taken_over)
    )
    newest = max([*folders.values(), *(stamp[1] for files in stamps.values() for stamp in files.values())], default=0)
    index = Indexed(run, state, lambda: contents, damage, bool(stages), stages=there)
    if damage or newest >= began - UNSETTLED_NS:
        return index
    settings = (f"{name}/{SETTINGS}" for name in folders if ITERATION.fullmatch(name.rpartition("/")[2]))
    stamps_of_settings = {name: stamp_of(f"{store.root}/{name}") for name in settings}
    head = {"run": run, "of": of, "state": state, "stages": list(stamps), "files": stamps_of_settings}
    written = remember(path, *lines_of(head, folders, stamps, contents))
    return replace(index, kept=stamp_of(path) if written else None)


def with_kinds(root: str, parts: list[Part]) -> list[Part]:
    """Mark the files of retries with their kind: most have no extra base, and a question about bases needn't open
    them."""
    return [
        part._replace(kind=only_value(f"{root}/{part.path}", "kind"))
        if (part.stage, part.table) == ("retries", "trajectories")
        else part
        for part in parts
    ]


def manifests_of(store: Store, run: str, folders: list[str]) -> tuple[list[Manifest], dict[str, str]]:
    """Return the manifests in some folders of a run, and what is wrong with the others: damaged, of a place that is
    none, or gone while what was made of them stayed."""
    sound: dict[StageKey, Manifest] = {}
    damage: dict[str, str] = {}
    for path in (path for folder in folders for path in store.files.paths(folder)):
        key = key_of(path)
        try:
            if key and (manifest := manifests.load(store.files, key)):
                sound[key] = manifest
            elif key is None and path.endswith(f"/{MANIFEST}"):
                damage[path.removesuffix(f"/{MANIFEST}")] = f"{path}: of no stage that this code knows"
        except (StoreError, OSError) as error:
            damage[key.folder if key else path] = str(error)
    parents = {manifests.reference(parent).key: one["stage"] for one in sound.values() for parent in one["parents"]}
    for key, stage in parents.items():
        if key.run == run and key not in sound and key.folder not in damage and store.files.token(key.manifest) is None:
            damage[key.folder] = f"{key.manifest}: missing, though {stage} was made from it"
    return list(sound.values()), damage


def named_files(stages: list[Manifest]) -> Iterator[tuple[str, NamedFile | None]]:
    """Yield every file that is read, with its bytes and sha256; None for files with a checksum of their own, such as
    manifests."""
    for manifest in stages:
        key = manifests.reference(manifest).key
        yield key.manifest, None
        yield from ((f"{key.folder}/{part['file']}", part) for part in manifest["parts"])


def verify_file(store: Store, name: str, entry: NamedFile | None, known: Stamp | None) -> Stamp:
    """Verify a file's bytes where its stamp is new; the result is the stamp. Raise StoreError where the bytes are
    others."""
    stamp = stamp_of(f"{store.root}/{name}")
    if entry is not None and (stamp is None or stamp != known):
        manifests.read_verified(store.files, name, entry)
    if stamp is None:
        raise StoreError(f"{name}: missing, although the index lists it; run the iteration again to make it again")
    return stamp


def is_unchanged(root: str, head: dict[str, Any], kept: list[dict[str, Any]]) -> bool:
    """Say whether every folder and file of these stages of a block is unchanged, and every folder around them."""
    try:
        folders = {name: when for one in (head, *kept) for name, when in one["folders"].items()}
        return all(os.stat(f"{root}/{name}").st_mtime_ns == when for name, when in folders.items()) and all(
            stamp_of(f"{root}/{name}") == stamp for one in (head, *kept) for name, stamp in one["files"].items()
        )
    except OSError:
        return False


def folder_stamps(root: str, top: str) -> Iterator[tuple[str, int]]:
    """Yield every folder in which a stage can appear."""
    for folder, folders, _ in os.walk(f"{root}/{top}"):
        folders[:] = [name for name in folders if name != "policies" and not name.startswith(".")]
        yield os.path.relpath(folder, root), os.stat(folder).st_mtime_ns

"""Seeded corruptions of a stored iteration: each is found before use, and named by the file or stage that it hit."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from r3l.errors import StoreError
from r3l.store.check import check_run
from r3l.store.damage import find_damage
from r3l.store.layout import StageRef
from r3l.store.manifest import seal
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, commit_stage, iteration_tables

Corrupt = Callable[[random.Random, Path, Path], Path]


def flip(chance: random.Random, path: Path) -> Path:
    """One bit of the file, anywhere."""
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return path


def cut(chance: random.Random, path: Path) -> Path:
    """A torn write: any length shorter than it was, 0 included."""
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])
    return path


def any_part(chance: random.Random, folder: Path) -> Path:
    return chance.choice(sorted(folder.glob("part-*")))


def missing(path: Path) -> Path:
    path.unlink()
    return path


def exchanged(chance: random.Random, folder: Path, other: Path) -> Path:
    """A sound part of another stage under this one's name."""
    path = any_part(chance, folder)
    path.write_bytes(
        chance.choice([p for p in sorted(other.glob("part-*")) if p.read_bytes() != path.read_bytes()]).read_bytes()
    )
    return path


def foreign(folder: Path, other: Path) -> Path:
    shutil.copy(other / "stage.json", folder / "stage.json")
    return folder / "stage.json"


def newer(folder: Path) -> Path:
    """A manifest of a later version of the code, sound in itself."""
    path = folder / "stage.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_bytes(seal(content | {"schema_version": content["schema_version"] + 1}))
    return path


def unnamed(chance: random.Random, folder: Path) -> Path:
    """A part that no manifest names."""
    path = folder / f"part-turns-{chance.randrange(16**12):012x}.parquet"
    path.write_bytes(any_part(chance, folder).read_bytes())
    return path


KINDS: dict[str, Corrupt] = {
    "bit of a part": lambda chance, folder, other: flip(chance, any_part(chance, folder)),
    "bit of a manifest": lambda chance, folder, other: flip(chance, folder / "stage.json"),
    "torn part": lambda chance, folder, other: cut(chance, any_part(chance, folder)),
    "torn manifest": lambda chance, folder, other: cut(chance, folder / "stage.json"),
    "missing part": lambda chance, folder, other: missing(any_part(chance, folder)),
    "missing manifest": lambda chance, folder, other: missing(folder / "stage.json"),
    "exchanged part": exchanged,
    "foreign manifest": lambda chance, folder, other: foreign(folder, other),
    "newer version": lambda chance, folder, other: newer(folder),
    "unnamed part": lambda chance, folder, other: unnamed(chance, folder),
}


def corrupted(store: Store, refs: list[StageRef], seed: int) -> tuple[str, StageRef, Path]:
    chance = random.Random(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    ref, other = chance.sample(refs, 2)
    path = KINDS[kind](chance, Path(store.root, ref.key.folder), Path(store.root, other.key.folder))
    return kind, ref, path


def used(store: Store, ref: StageRef) -> str:
    """What using the stage says: found, absent (it is made again), or refused."""
    try:
        return "found" if store.find(ref.key, ref.fingerprint) else "absent"
    except StoreError:
        return "refused"


def hunt(tmp_path: Path, seeds: range) -> int:
    """Corruptions that were found by the check, named, and not used."""
    store = Store.open(str(tmp_path / "runs"))
    refs = list(commit_iteration(store).values())
    sound = tmp_path / "sound"
    shutil.copytree(store.root, sound)
    assert check_run(store, "demo") == []
    expected = dict.fromkeys(KINDS, "absent") | {"newer version": "refused", "unnamed part": "found"}
    found = 0
    for seed in seeds:
        kind, ref, _ = corrupted(store, refs, seed)
        findings = list(find_damage(store, "demo"))
        named = any(ref.key.folder in f"{finding.place} {finding.what}" for finding in findings)
        found += named and used(store, ref) == expected[kind]
        shutil.rmtree(store.root)
        shutil.copytree(sound, store.root)
    return found


def test_corruptions_of_every_kind_are_found(tmp_path):
    assert hunt(tmp_path, range(100)) == 100


def test_the_error_names_the_corrupt_file(tmp_path):
    store = Store.open(str(tmp_path))
    refs = list(commit_iteration(store).values())
    _, ref, path = corrupted(store, refs, 0)
    with pytest.raises(StoreError, match=path.name):
        store.read(ref, path.name.split("-")[1])


def test_what_was_made_from_lost_rows_is_made_again_too(tmp_path):
    """Base is damaged and sampled again with other rows: the stages made from the old rows no longer count as found."""
    store = Store.open(str(tmp_path))
    refs = commit_iteration(store)
    base, child, tasks = refs["base"], refs["oracle_pivots"], refs["tasks"]
    assert store.find(child.key, child.fingerprint) == child
    again = commit_stage(store, "base", iteration_tables(0)["base"], [tasks], "demo", 0)
    assert store.find(child.key, child.fingerprint) == child
    other = commit_stage(store, "base", iteration_tables(1)["base"], [tasks], "demo", 0)
    assert again.fingerprint == other.fingerprint == base.fingerprint
    assert store.find(child.key, child.fingerprint) is None
    assert [(f.check, f.place) for f in find_damage(store, "demo")] == [("lineage", child.key.folder)]

"""Random mutations of a store: `check` neither crashes nor hangs, and finds each that changes an answer to a question
that ships."""

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r3l.audit.web.sandbox import worked_questions
from r3l.errors import StoreError
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.manifest import seal
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

MUTATIONS = int(os.environ.get("R3L_FUZZ", "20000"))
PARTS = 20  # side by side where there are processors
LONGEST_S = 30.0
QUESTIONS = [one.sql for one in worked_questions(Path(__file__).parents[2] / "data" / "queries")]
ODD = (None, -1, 0, 10**30, 1.5, "", "0", "demo", [], {}, [None], True, "\ud800", "../../x")
Mutation = Callable[[random.Random, Path], None]


def flipped(dice: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def cut(dice: random.Random, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: dice.randrange(len(content) + 1)])


def grown(dice: random.Random, path: Path) -> None:
    path.write_bytes(path.read_bytes() + dice.randbytes(dice.randrange(1, 40)))


def renamed(dice: random.Random, path: Path) -> None:
    path.rename(path.with_name(dice.choice(["stage.json~", "part-x.parquet", "Ünïcode", "a" * 200, f"{path.name}.gz"])))


def folder_renamed(dice: random.Random, path: Path) -> None:
    names = ["shard=001", "shard=7", "iteration=-0001", "iteration=00099", "credit", "branch=x", "base", "x"]
    path.parent.rename(path.parent.with_name(dice.choice(names)))


def folder_copied(dice: random.Random, path: Path) -> None:
    shutil.copytree(path.parent, path.parent.with_name(dice.choice(["shard=001", "iteration=00002", "copy", "base"])))


def linked(dice: random.Random, path: Path) -> None:
    path.unlink()
    path.symlink_to(dice.choice([path.name, "/dev/zero", "/nowhere", "..", "/etc/hostname"]))


def piped(dice: random.Random, path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def gone(dice: random.Random, path: Path) -> None:
    shutil.rmtree(path.parent) if dice.random() < 0.3 else path.unlink()


def value_changed(dice: random.Random, path: Path, sealed: bool = False) -> None:
    """Change one value of a manifest, anywhere in it; `sealed`: under a checksum that is right."""
    if path.name != "stage.json":
        return flipped(dice, path)
    manifest: Any = json.loads(path.read_text())
    checksum = manifest.pop("checksum")
    inner, name = manifest, dice.choice(sorted(manifest))
    while isinstance(inner[name], dict | list) and inner[name] and dice.random() < 0.7:
        inner = inner[name]
        name = dice.choice(sorted(inner)) if isinstance(inner, dict) else dice.randrange(len(inner))
    inner[name] = dice.choice(ODD)
    try:
        path.write_bytes(seal(manifest) if sealed else json.dumps(manifest | {"checksum": checksum}).encode())
    except UnicodeEncodeError:
        path.write_text(json.dumps(manifest | {"checksum": checksum}))
    return None


def value_changed_and_sealed(dice: random.Random, path: Path) -> None:
    value_changed(dice, path, sealed=True)


KINDS: tuple[Mutation, ...] = (
    flipped, cut, grown, renamed, folder_renamed, folder_copied, linked, piped, gone, value_changed,
    value_changed_and_sealed,
)  # fmt: skip


def answers(store: Store) -> list[list[str]] | str:
    """What the questions say, whatever the order of equal rows; in words where the whole run is refused."""
    try:
        with connect(store, ["demo"]) as connection:
            said = [connection.execute(question).fetchall() for question in ("FROM left_out", *QUESTIONS)]
            return [sorted(map(str, rows)) for rows in said]
    except StoreError as error:
        return str(error)


def nobody_can_tell(path: Path, before: Path) -> bool:
    """Whether the newest iteration lost its update, as if it were at work; or a stage its seconds, which it alone
    knows."""
    if path.parts[-3:-1] == ("iteration=00001", "updates") and not path.parent.exists():
        return True
    if path.name != "stage.json" or not path.is_file():
        return False
    manifests = [json.loads(one.read_text()) for one in (path, before)]
    for manifest in manifests:
        manifest["checksum"] = manifest["metrics"] = None
    return manifests[0] == manifests[1]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_mutation_crashes_or_hangs_check_and_none_that_changes_an_answer_is_missed(part, tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    whole = tmp_path / "whole"
    for iteration in range(2):
        commit_iteration(Store.open(str(whole)), "demo", iteration=iteration)
    before = answers(Store.open(str(whole)))
    assert before == answers(Store.open(str(whole)))
    missed, found_in_all = [], 0
    for number in range(part, MUTATIONS, PARTS):
        dice, root = random.Random(number), tmp_path / "store"
        shutil.copytree(whole, root)
        path = dice.choice(sorted(one for one in (root / "demo").rglob("*") if one.is_file()))
        kind = dice.choice(KINDS)
        try:
            kind(dice, path)
        except OSError:  # the name is taken: the next one
            shutil.rmtree(root)
            continue
        began = time.monotonic()
        try:
            findings = [str(one) for one in check_run(Store.open(str(root)), "demo")]
        except StoreError as error:  # nothing of the run is left
            findings = [str(error)]
        assert time.monotonic() - began < LONGEST_S, (number, kind.__name__)
        found_in_all += bool(findings)
        told = bool(findings) or nobody_can_tell(path, whole / path.relative_to(root))
        if not told and answers(Store.open(str(root))) != before:
            missed.append(f"{number} {kind.__name__} {path.relative_to(root)}")
        shutil.rmtree(root)
    print(f"mutations {part}, {part + PARTS}, ... of {MUTATIONS}: {found_in_all} found, {len(missed)} missed")
    assert missed == []

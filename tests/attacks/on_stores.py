"""Attacks on what is stored: by the disk, by kills, by other writers, by damage."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from r3l.pipeline.stages.updates import sweep_staging
from r3l.store.catalog import connect
from r3l.store.check import check_run, find_damage
from r3l.store.files.staging import GUARD
from r3l.store.stage import Store
from tests.attacks.outcomes import Outcomes, refusal
from tests.properties.test_store_corruption import KINDS, corrupted, used
from tests.support import store_killing
from tests.support.store_iteration import commit_iteration
from tests.unit.test_store_index import COUNT, DAMAGE
from tests.unit.test_store_staging import updating


def kills(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """SIGKILLs of a writer, before each rename and at random moments, each followed by another start."""
    found = store_killing.main(23, tries, per_store=20)
    for name in ("lost", "made_again", "findings", "other_digests", "left_over"):
        outcomes.broken += [f"after a kill: {name}"] * found[name]
    outcomes.tried += found["kills"]


def damage(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """Bits, torn and missing files, exchanged and foreign ones: found by `check`, named, and never used."""
    store = Store.open(str(folder / "runs"))
    refs = list(commit_iteration(store).values())
    shutil.copytree(store.root, folder / "sound")
    expected = dict.fromkeys(KINDS, "absent") | {"newer version": "refused", "unnamed part": "found"}
    for seed in range(tries):
        kind, ref, _ = corrupted(store, refs, 23_000 + seed)
        with outcomes.attempt(kind):
            findings = list(find_damage(store, "demo"))
            assert any(ref.key.folder in f"{one.place} {one.what}" for one in findings), "not found by check"
            assert used(store, ref) == expected[kind], f"{used(store, ref)} when it is asked for"
        shutil.rmtree(store.root)
        shutil.copytree(folder / "sound", store.root)


def damaged_runs(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """A damaged run beside a sound one: left out by its name, and the other one is answered for."""
    for name, harm in DAMAGE.items():
        store = Store.open(str(folder / name.replace(" ", "-")))
        for run in ("good", "other"):
            commit_iteration(store, run)
        harm(store)
        with outcomes.attempt(name), connect(store) as connection:
            assert connection.execute(COUNT).fetchall() == [("other", 21)], "the other run's rows are not these"
            assert [run for run, _ in connection.execute("FROM left_out").fetchall()] == ["good"], "not named"


def full_disk(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """No space left at the n-th write: one clear error, what is stored stays sound, and the next start finishes."""
    for number in range(1, tries + 1):
        root = str(folder / f"{number:03d}")
        with outcomes.attempt(f"write {number}"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "fsync", failing(number, OSError(28, "No space left on device")))
                said = refusal(lambda: store_killing.write(root))  # noqa: B023
                assert "No space left on device" in said, "the reason is not said"
            store = Store.open(root)
            if store.runs():
                left = [one for one in check_run(store, "demo") if "no manifest names it" not in one.what]
                assert left == [], "what is stored is not sound"
            store_killing.write(root)
            assert check_run(store, "demo") == [], "not sound after the next start"
            assert os.listdir(f"{root}/.staging") == [GUARD], "something is left in staging"


def failing(number: int, error: OSError) -> Any:
    """An `os.fsync` whose call of that number, counted from 1, fails."""
    real, left = os.fsync, [number]

    def fsync(handle: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise error
        real(handle)

    return fsync


def second_starts(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """A second start of a run sweeps while an update lives: the update's folder stays; once its maker is dead, it
    goes."""
    for number in range(tries):
        run = folder / f"run-{number}"
        run.mkdir()
        child, made = updating(run, 3)
        with outcomes.attempt(f"start {number}"), child:
            try:
                for iteration in (3, 4):
                    sweep_staging(run, iteration)
                assert (made / "policy").is_dir(), "the update's folder was swept under it"
            finally:
                child.kill()
                child.wait()
            sweep_staging(run, 4)
            assert not made.exists(), "what a dead update left stays"


def odd_names(folder: Path, outcomes: Outcomes, tries: int) -> None:
    """Folders with odd names, a folder in a manifest's place: none stops a reader or is swept away as if it were
    nothing."""
    for number, name in enumerate(
        ("branch=we ird", "branch=", "branch=..", "iteration=0", "iteration=x", "branch=a\nb", "shard=0", "x" * 200)
    ):
        store = Store.open(str(folder / str(number)))
        ref = commit_iteration(store)["tasks"]
        odd = Path(store.root, "demo", name, "iteration=00000", "tasks")
        odd.mkdir(parents=True)
        shutil.copy(Path(store.root, ref.key.manifest), odd)
        with outcomes.attempt(name), connect(store) as connection:
            assert connection.execute("FROM left_out").fetchall() == [], "the run is left out"
            assert len(store.stages("demo")) == 9, "it counts as a stage"
            assert store.sweep("demo") == [], "something was swept"
            assert len(check_run(store, "demo")) == 1, "check does not name it"
    store = Store.open(str(folder / "folder"))
    ref = commit_iteration(store)["base"]
    Path(store.root, ref.key.manifest).unlink()
    Path(store.root, ref.key.manifest).mkdir()
    with outcomes.attempt("a folder as stage.json"):
        assert store.sweep("demo") == [], "the stage's parts were swept"
        assert check_run(store, "demo"), "check does not name it"

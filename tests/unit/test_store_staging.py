"""What is swept of what is being written: only what its maker left behind when it died."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.pipeline.stages.updates import sweep_staging
from r3l.store.files import process, staging
from r3l.store.stage import Store

UPDATE = """
import pathlib, sys, time
from r3l.store.files.staging import staged_update
made = pathlib.Path(sys.argv[1], ".staging", staged_update(int(sys.argv[2])))
(made / "policy").mkdir(parents=True)
print(made, flush=True)
time.sleep(60)
"""


def updating(run: Path, iteration: int) -> tuple[subprocess.Popen[str], Path]:
    """A process that is at an update, and the folder that it writes to."""
    child = subprocess.Popen(
        [sys.executable, "-c", UPDATE, str(run), str(iteration)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def staging_name(what: str, part: int = 0) -> str:
    """A name staged by a process that can't be seen from here."""
    parts = process.mark().split("~")
    parts[part] = "another"
    return "~".join([*parts, what])


def test_a_living_update_of_another_iteration_goes_on(tmp_path):
    """Two iterations of a run at once: the second start sweeps, and the first one's folder stays until its maker is
    dead."""
    child, folder = updating(tmp_path, 3)
    with child:
        sweep_staging(tmp_path, 4)
        sweep_staging(tmp_path, 3)  # its maker is seen to live
        assert (folder / "policy").is_dir()
        child.kill()
    sweep_staging(tmp_path, 4)
    assert list((tmp_path / ".staging").iterdir()) == []


@pytest.mark.parametrize("part", [0, 1, 2])
def test_an_update_that_can_not_be_seen_is_swept_by_the_holder_of_its_iteration_alone(tmp_path, part):
    """Another host, boot or pid namespace: who holds the iteration's lock knows that the maker lost it."""
    folder = tmp_path / staging_name("update-00003-abc", part)
    folder.mkdir()
    os.utime(folder, (0, 0))
    assert staging.sweep(tmp_path) == staging.sweep(tmp_path, 4) == []
    assert staging.sweep(tmp_path, 3) == [folder]


def test_a_file_that_can_not_be_seen_is_swept_after_a_day(tmp_path):
    fresh, old, nested = (tmp_path / staging_name(name) for name in ("file-1", "file-2", "policy-3"))
    for path in (fresh, old):
        path.write_bytes(b"half")
    (nested / "inner").mkdir(parents=True)
    for path in (old, nested):
        os.utime(path, (1, 1))
    assert staging.sweep(tmp_path) == [old]  # something in the folder is new
    os.utime(nested / "inner", (1, 1))
    assert staging.sweep(tmp_path) == [nested]


def test_the_guard_and_what_this_process_writes_stay(tmp_path):
    store = Store.open(str(tmp_path))
    store.files.put_if("demo/a", b"a", None)
    mine = tmp_path / ".staging" / staging.staging_name()
    mine.write_bytes(b"half")
    for path in (tmp_path / ".staging" / staging.GUARD, mine):
        os.utime(path, (1, 1))
    assert store.files.sweep_staging() == []
    assert sorted(os.listdir(tmp_path / ".staging")) == sorted([staging.GUARD, mine.name])


def test_names_differ_and_name_their_maker():
    names = {staging.staging_name() for _ in range(100)}
    assert len(names) == 100
    assert {name.rpartition("~")[0] for name in names} == {process.mark()}

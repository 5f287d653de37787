"""The update's process that starts before its first job and does one job after another."""

import io
import shutil
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from r3l.errors import Interrupted, TrainingError
from r3l.pipeline.update import output, process
from r3l.pipeline.update.output import WaitingProcess
from r3l.training import __main__ as training
from r3l.training.parallel.forked import Forked
from r3l.training.parallel.ranks import join
from tests.support.update_world import group, relative_error, write_policy, write_rows

SAYS_WHO_IT_IS = """
import json, os, pathlib, sys
for line in sys.stdin:
    job = json.loads(pathlib.Path(line.strip()).read_text())
    if job.get("fails"):
        print(json.dumps({"event": "failed", "cause": "no rows"}))
        sys.exit(1)
    pathlib.Path(job["out"], "update.json").write_text(json.dumps({"pid": os.getpid(), "said": dict(os.environ)}))
    print(json.dumps({"event": "idle"}), flush=True)
"""

LATE_SECOND_RANK = """
import json, os, pathlib, sys, tempfile, time
import torch
from r3l.training import __main__ as training, update

def run_update(job, ranks, say, import_seconds):
    total = ranks.sum(torch.tensor([ranks.rank + 1.0])).item()
    time.sleep(ranks.rank)  # the second rank is not done when the first one says that it is
    if ranks.leads:
        left = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("r3l")]
        result = {"total": total, "job": sorted(os.listdir(job)), "temporary": left}
        pathlib.Path(job, "update.json").write_text(json.dumps(result))
    return dict.fromkeys(("step", "loss", "grad_norm", "seconds", "seconds_by_part"))

update.run_update = run_update
training.read_job = lambda path: path.parent
sys.exit(training.wait_for_jobs(2))
"""

BEGINS = """
import time
input()
print('{"event": "start"}', flush=True)
time.sleep(600)
"""


def launch(folder: Path, ready: WaitingProcess | None, timeout_s: float = 60, ranks: int = 1, **job):
    return process.launch({"out": str(folder), **job}, folder, ranks, timeout_s, lambda line: None, None, ready)


@pytest.fixture
def cold(monkeypatch):
    """What is started where no process waits says that it was."""
    script = "import pathlib, sys; pathlib.Path(sys.argv[1], 'update.json').write_text('{\"pid\": 0}')"
    monkeypatch.setattr(process, "_command", lambda spec, processes: [sys.executable, "-c", script, str(spec.parent)])


def waits(monkeypatch, script: str) -> WaitingProcess:
    monkeypatch.setattr(output, "COMMAND", [sys.executable, "-c", script])
    ready = WaitingProcess()
    ready.start(1)
    return ready


def test_one_process_does_one_job_after_another(monkeypatch, tmp_path, cold):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    with closing(waits(monkeypatch, SAYS_WHO_IT_IS)) as ready:
        first = launch(tmp_path / "first", ready)
        ready.start(1)  # one waits: no further one is started
        second = launch(tmp_path / "second", ready)
    assert first["pid"] == second["pid"] != 0
    assert "AWS_SECRET_ACCESS_KEY" not in first["said"]
    assert launch(tmp_path / "third", ready)["pid"] == 0, "it was closed"


def test_a_failed_job_says_why_and_the_next_has_another_process(monkeypatch, tmp_path, cold):
    with closing(waits(monkeypatch, SAYS_WHO_IT_IS)) as ready:
        with pytest.raises(TrainingError, match="exit code 1: no rows;"):
            launch(tmp_path / "first", ready, fails=True)
        assert launch(tmp_path / "second", ready)["pid"] == 0
        ready.start(1)
        assert launch(tmp_path / "third", ready)["pid"] != 0


def test_a_hung_job_is_stopped_with_its_process(monkeypatch, tmp_path, cold):
    with closing(waits(monkeypatch, "import time; time.sleep(600)")) as ready:
        with pytest.raises(TrainingError, match="silent for 1 s and was stopped"):
            launch(tmp_path / "first", ready, timeout_s=1)
        assert launch(tmp_path / "second", ready)["pid"] == 0


def test_a_job_whose_process_is_closed_because_the_work_ended_did_not_fail(monkeypatch, tmp_path, cold):
    stopped = threading.Event()
    ready = waits(monkeypatch, BEGINS)

    def end():
        stopped.set()
        ready.close()

    def on_line(line):  # the end comes while the next line is awaited
        threading.Timer(0.1, end).start()

    with pytest.raises(Interrupted, match="nobody waits for it"):
        process.launch({"out": str(tmp_path)}, tmp_path, 1, 60, on_line, stopped, ready)


def test_several_nodes_start_their_own(monkeypatch):
    monkeypatch.setenv("PET_NNODES", "2")
    ready = waits(monkeypatch, SAYS_WHO_IT_IS)
    assert ready.take(Path("job.json"), 1) is None


def test_a_job_in_other_ranks_than_those_that_wait_has_a_process_of_its_own(monkeypatch, tmp_path, cold):
    with closing(waits(monkeypatch, SAYS_WHO_IT_IS)) as ready:
        assert launch(tmp_path / "two", ready, ranks=2)["pid"] == 0
        assert launch(tmp_path / "one", ready)["pid"] != 0


def job(tmp_path: Path, number: int) -> dict:
    """Three groups of unequal size."""
    if not (tmp_path / "policy").exists():
        write_policy(tmp_path / "policy")
    rows = [row for at, members in enumerate((4, 2, 3)) for row in group(10 * number + at, f"g{at}", members=members)]
    return {
        "rows": [write_rows(tmp_path / f"{number}.parquet", rows)],
        "groups": 3,
        "policy": {"path": str(tmp_path / "policy"), "digest": "start"},
        "training": {"learning_rate": 1e-3, "device": "cpu"},
        "seed": number,
    }


@pytest.mark.slow
def test_the_second_job_of_a_process_is_the_one_that_a_process_of_its_own_would_do(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with closing(WaitingProcess()) as ready:
        ready.start(1)
        launch(tmp_path / "before", ready, **job(tmp_path, 0))
        kept = launch(tmp_path / "kept", ready, **job(tmp_path, 1))
        log = (tmp_path / "kept" / process.LOG).read_text()
    alone = launch(tmp_path / "alone", None, **job(tmp_path, 1))
    timed = {"seconds", "seconds_by_part", "peak_memory_mb"}

    def untimed(figures: dict) -> dict:
        return {name: figures[name] for name in figures.keys() - timed - {"steps"}}

    assert untimed(kept) == untimed(alone)
    assert [untimed(step) for step in kept["steps"]] == [untimed(step) for step in alone["steps"]]
    assert kept["seconds_by_part"]["import"] < alone["seconds_by_part"]["import"]
    for part in ("policy/model.safetensors", "optimizer/optimizer.safetensors"):
        assert (tmp_path / "kept" / part).read_bytes() == (tmp_path / "alone" / part).read_bytes()
    assert "Traceback" not in log


@pytest.mark.slow
def test_nothing_that_ranks_look_for_later_stands_in_a_job_s_folder(monkeypatch, tmp_path):
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(output, "COMMAND", [sys.executable, "-c", LATE_SECOND_RANK])
    with closing(WaitingProcess()) as ready:
        ready.start(2)
        for name in ("first", "second", "third"):
            result = launch(tmp_path / name, ready, timeout_s=40, ranks=2)
            assert result == {"total": 3.0, "job": ["job.json", process.LOG], "temporary": []}
            shutil.rmtree(tmp_path / name)


@pytest.mark.slow
def test_forked_ranks_take_the_steps_of_one_process_job_after_job(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with closing(WaitingProcess()) as ready:
        ready.start(2)
        forked = {
            number: launch(tmp_path / f"forked{number}", ready, ranks=2, **job(tmp_path, number)) for number in (0, 1)
        }
        log = (tmp_path / "forked1" / process.LOG).read_text()
    for number in (0, 1):
        alone = launch(tmp_path / f"alone{number}", None, **job(tmp_path, number))
        assert forked[number]["loss"] == pytest.approx(alone["loss"], rel=1e-6)
        assert forked[number]["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-5)
        assert forked[number]["tokens_computed"] == alone["tokens_computed"], "no group was taken twice"
        weights = [load_file(tmp_path / f"{who}{number}" / "policy/model.safetensors") for who in ("forked", "alone")]
        assert all(relative_error(weights[0][name], weights[1][name]) < 1e-5 for name in weights[0])
    assert "Traceback" not in log


@pytest.mark.slow
@pytest.mark.parametrize("name", [signal.SIGKILL, signal.SIGTERM], ids=lambda name: name.name)
def test_a_forked_rank_ends_with_the_first(name):
    ready = WaitingProcess()
    ready.start(2)
    first = psutil.Process(ready._process.pid)
    until = time.monotonic() + 60
    while not (ranks := first.children()) and time.monotonic() < until:
        time.sleep(0.1)
    assert len(ranks) == 1
    first.send_signal(name)
    _, left = psutil.wait_procs(ranks, timeout=10)
    assert not left
    ready.close()


@pytest.mark.parametrize(
    ("gpus", "ranks", "device", "backend"),
    [(0, 2, None, "gloo"), (1, 2, 0, "gloo"), (2, 2, 1, "nccl"), (8, 2, 1, "nccl")],
)
def test_ranks_share_a_gpu_where_there_are_fewer(monkeypatch, gpus, ranks, device, backend):
    chosen = {}
    for name, value in {"RANK": 1, "WORLD_SIZE": ranks, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": ranks}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.cuda.set_device", lambda number: chosen.update(device=number))
    monkeypatch.setattr("torch.distributed.init_process_group", lambda kind: chosen.update(backend=kind))
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: ranks)
    join()
    assert (chosen.get("device"), chosen["backend"]) == (device, backend)


@pytest.mark.parametrize(("gpus", "started"), [(1, "fork of 1"), (2, "torchrun of 2"), (8, "torchrun of 2")])
def test_a_waiting_process_has_no_more_ranks_than_gpus_and_forks_none_of_them(monkeypatch, gpus, started):
    said = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr(training, "under_torchrun", lambda path, size: said.append(f"torchrun of {size}"))
    monkeypatch.setattr(training, "end_with_launcher", lambda: None)
    monkeypatch.setattr(
        "r3l.training.parallel.forked.fork", lambda size: said.append(f"fork of {size}") or Forked(0, size, [])
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("job.json\n"))
    training.wait_for_jobs(2)
    assert said == [started]

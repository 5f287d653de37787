"""The watch over the update job: what it prints is heard, what fails or hangs is said."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from r3l.errors import Interrupted, TrainingError
from r3l.pipeline.update import output, process
from r3l.store.files.process import start_time


def launch(monkeypatch, folder: Path, script: str, timeout_s: float = 20):
    """Run `script` in the job's place."""
    monkeypatch.setattr(process, "_command", lambda spec, processes: [sys.executable, "-c", script])
    lines = []
    return process.launch({"out": str(folder)}, folder, 1, timeout_s, lines.append), lines


def test_its_lines_are_heard_and_its_result_is_read(monkeypatch, tmp_path):
    script = f"""
import json, pathlib
print(json.dumps({{"event": "micro_batch", "tokens": 7}}))
print("not json")
pathlib.Path({str(tmp_path)!r}, "update.json").write_text(json.dumps({{"loss": 0.5}}))
"""
    result, lines = launch(monkeypatch, tmp_path, script)
    assert result == {"loss": 0.5}
    assert lines == [{"event": "micro_batch", "tokens": 7}, {"event": "text", "text": "not json"}]


def test_its_environment_has_no_credential(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    script = f"""
import json, os, pathlib
pathlib.Path({str(tmp_path)!r}, "update.json").write_text(json.dumps(dict(os.environ)))
"""
    result, _ = launch(monkeypatch, tmp_path, script)
    assert "AWS_SECRET_ACCESS_KEY" not in result
    assert {"PATH", "CUDA_VISIBLE_DEVICES", "R3L_LAUNCHER"} <= set(result)


def test_a_job_that_nobody_waits_for_is_stopped(monkeypatch, tmp_path):
    stopped = threading.Event()
    threading.Timer(1.0, stopped.set).start()
    monkeypatch.setattr(
        process, "_command", lambda spec, processes: [sys.executable, "-c", "import time; time.sleep(600)"]
    )
    with pytest.raises(Interrupted, match="nobody waits"):
        process.launch({"out": str(tmp_path)}, tmp_path, 1, 600, lambda line: None, stopped)


def test_a_failed_job_says_its_last_words(monkeypatch, tmp_path):
    with pytest.raises(TrainingError, match="exit code 3: no such policy"):
        launch(monkeypatch, tmp_path, "import sys; print('no such policy', file=sys.stderr); sys.exit(3)")


def test_the_cause_that_the_job_names_itself_comes_first(monkeypatch, tmp_path):
    script = (
        'import sys; print(\'{"event": "failed", "cause": "no rows"}\'); print(\'more\', file=sys.stderr); sys.exit(1)'
    )
    with pytest.raises(TrainingError, match="exit code 1: no rows;"):
        launch(monkeypatch, tmp_path, script)


def test_a_hung_job_is_stopped(monkeypatch, tmp_path):
    with pytest.raises(TrainingError, match=r"silent for 1 s and was stopped"):
        launch(monkeypatch, tmp_path, "import time; time.sleep(600)", timeout_s=1)


def test_a_job_deaf_to_sigterm_is_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(output, "STOP_GRACE_S", 0.5)
    with pytest.raises(TrainingError, match="was stopped"):
        launch(
            monkeypatch,
            tmp_path,
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); "
            "time.sleep(600)",
            timeout_s=2,
        )


def test_settling_replaces_a_leftover(tmp_path):
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
    process.settle(tmp_path / "new", tmp_path / "old", 0)
    assert (tmp_path / "old" / "which").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_job_ends_when_its_launcher_is_killed(tmp_path):
    """SIGKILL leaves the launcher no time to stop it."""
    job = (
        "from r3l.training.parallel import launcher; launcher.EVERY_S = 0.05; launcher.end_with_launcher(); "
        "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    )
    launching = f"""
import os, subprocess, sys
from r3l.store.files.process import mark
subprocess.run([sys.executable, "-c", {job!r}], env=os.environ | {{"R3L_LAUNCHER": mark()}}, start_new_session=True)
"""
    with subprocess.Popen([sys.executable, "-c", launching], stdout=subprocess.PIPE, text=True) as launcher:
        pid = int(launcher.stdout.readline())
        assert start_time(pid)
        launcher.kill()
    end = time.monotonic() + 20
    while start_time(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not start_time(pid)

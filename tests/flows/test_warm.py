"""A worker's flow runs: the first starts a warm process, which forks the next ones and is to them what a worker is."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from r3l.system.child_environment import importable
from tests.support.prefect_world import wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the warm process needs pidfds")

# A worker that starts the command for each line, with its variables, and says its process and how it ended.
WORKER = """
import json, subprocess, sys
for line in sys.stdin:
    asked = json.loads(line)
    with open(asked["said"], "w") as said:
        run = subprocess.Popen(asked["command"], env=asked["environment"], stdout=said, cwd=asked["folder"])
    print(run.pid, flush=True)
    print(run.wait(), flush=True)
"""
COMMAND = """
from flows.serving import flow_run
flow_run.ENGINE, flow_run.WARM = "the_engine", "the_warm_process"
flow_run.main()
"""
MODULES = {
    "the_engine": """
import json, os, signal, sys, time
import helper
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
what, its = os.environ["PREFECT__WHAT"], os.environ["PREFECT__FLOW_RUN_ID"]
found = {"pid": os.getpid(), "parent": os.getppid(), "folder": os.getcwd(), "id": its, "helper": helper.VALUE}
found["left"] = os.environ.get("PREFECT__OF_THE_FIRST")
print(json.dumps(found), flush=True)
if what == "wait":
    time.sleep(60)
elif what == "die":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(what))
""",
    "the_warm_process": """
import sys
from pathlib import Path
from flows.serving import warm
warm.LOADED, warm.ENGINE = ("helper", "no_such_module"), "the_engine"
warm.main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
""",
    "helper": "VALUE = 1",
}


@dataclass
class Worker:
    """A worker in a folder of its own."""

    folder: Path
    process: subprocess.Popen[str] = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def said(self) -> Path:
        return self.folder / f"said-{self.count}"

    def begin(self, what: object, **variables: str) -> int:
        """Start a flow run; the result is the process of its command."""
        self.count += 1
        environment = importable(os.environ) | {"PREFECT__WHAT": str(what), "PREFECT__FLOW_RUN_ID": str(self.count)}
        environment["PYTHONPATH"] += f"{os.pathsep}{self.folder}"
        asked = {
            "command": [sys.executable, "-P", "-c", COMMAND],
            "environment": environment | {"PREFECT_HOME": str(self.folder / "home")} | variables,
            "said": str(self.said),
            "folder": str(self.folder),
        }
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return int(self.read())

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def engine(self) -> dict[str, Any]:
        """What the engine of the newest flow run says of itself."""
        return dict(json.loads(wait("the engine", 60, lambda: self.said.is_file() and self.said.read_text())))

    def run(self, what: object = 0, **variables: str) -> tuple[int, bool]:
        """A flow run to its end: how it ended, and whether it was forked."""
        command = self.begin(what, **variables)
        status = int(self.read())
        return status, self.engine()["pid"] != command

    def warm(self) -> int:
        """The warm process, once it listens."""
        wait(
            "the warm process", 60, lambda: [path for path in (self.folder / "home").glob("warm-*") if path.is_socket()]
        )
        [found] = self.processes()
        return found

    def processes(self) -> list[int]:
        return [
            one.pid for one in psutil.process_iter(["cmdline"]) if str(self.process.pid) in (one.info["cmdline"] or ())
        ]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        wait("the end of the warm process", 30, lambda: not self.processes())


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    made = Worker(tmp_path)
    yield made
    made.end()  # and its warm process with it, whatever the test did
    assert not list((tmp_path / "home").glob("warm-*"))


def test_the_second_flow_run_of_a_worker_is_forked_and_is_what_the_first_was(worker):
    assert worker.run(7, PREFECT__OF_THE_FIRST="its own") == (7, False)
    warm_process = worker.warm()
    assert worker.run(7) == (7, True)
    found = {"parent": warm_process, "folder": str(worker.folder), "id": "2", "helper": 1, "left": None}
    assert worker.engine() == found | {"pid": worker.engine()["pid"]}
    assert worker.run("die") == (-signal.SIGKILL, True), "as the flow run ends, so does its command"
    assert worker.run() == (0, True), "and the warm process goes on"
    log = (worker.folder / "home" / "warm.log").read_text()
    assert [line.split("for ")[1] for line in log.splitlines()] == ["flow run 2", "flow run 3", "flow run 4"]


def test_a_signal_reaches_the_flow_run_and_a_killed_command_takes_it_along(worker):
    worker.run()
    worker.warm()
    command = worker.begin("wait")
    worker.engine()
    assert os.getpgid(command) == command, "what is sent to the worker's group does not reach it"
    os.kill(command, signal.SIGTERM)
    assert int(worker.read()) == 5, "the flow run chose how to end"

    command = worker.begin("wait")
    engine = worker.engine()["pid"]
    os.kill(command, signal.SIGKILL)
    assert int(worker.read()) == -signal.SIGKILL
    wait("the end of the flow run", 10, lambda: not psutil.pid_exists(engine))
    assert worker.run() == (0, True)


def test_a_killed_warm_process_takes_its_flow_runs_along_and_the_next_one_starts_another(worker):
    worker.run()
    first = worker.warm()
    worker.begin("wait")
    engine = worker.engine()["pid"]
    os.kill(first, signal.SIGKILL)
    assert int(worker.read()) == 1
    wait("the end of the flow run", 10, lambda: not psutil.pid_exists(engine))
    assert worker.run() == (0, False)
    wait("another warm process", 60, lambda: worker.run() == (0, True))
    assert worker.warm() != first


def test_other_variables_are_not_those_of_the_warm_process(worker):
    worker.run()
    worker.warm()
    assert worker.run(OMP_NUM_THREADS="3") == (0, False)
    assert worker.run() == (0, True)


def test_a_folder_that_cannot_be_written_to_stops_no_flow_run(worker):
    (worker.folder / "home").write_text("no folder")
    assert worker.run(7) == (7, False)
    assert worker.run(7) == (7, False)
    (worker.folder / "home").unlink()


def test_one_that_may_not_fork_is_started_once(worker):
    module = worker.folder / "the_warm_process.py"
    module.write_text(module.read_text().replace("warm.main", "warm.unfit = lambda: 'why not'\nwarm.main"))
    assert worker.run() == (0, False)
    log = worker.folder / "home" / "warm.log"
    wait("its reason", 60, lambda: log.read_text() == "flow runs are not forked: why not\n")
    wait("its end", 30, lambda: not worker.processes())
    log.write_text("")
    assert worker.run() == (0, False)
    assert (log.read_text(), worker.processes()) == ("", [])
    for left in log.parent.glob("warm-*"):
        left.unlink()


def test_a_changed_file_ends_the_warm_process_and_the_next_flow_run_has_the_new_one(worker):
    worker.run()
    first = worker.warm()
    (worker.folder / "helper.py").write_text("VALUE = 22")
    assert worker.run() == (0, False)
    assert worker.engine()["helper"] == 22
    wait("the end of the first", 10, lambda: not psutil.pid_exists(first))
    wait("another warm process", 60, lambda: worker.run() == (0, True))
    assert worker.engine()["helper"] == 22


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("", ""),
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "2 threads run, and a fork has one"),
        ("warm.target = lambda opened: '/dev/nvidia0'", "/dev/nvidia0 is open, and a fork can't use it"),
    ],
)
def test_a_process_with_a_second_thread_or_an_open_gpu_does_not_fork(before, why):
    program = f"import threading, time\nfrom flows.serving import warm\n{before}\nprint(warm.unfit())"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == f"{why}\n"

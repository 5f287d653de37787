"""Ending real runs in real processes: `r3l iterate` in a terminal's place and the deployment under a worker, on a real
Prefect server, each in the middle of sampling, reflecting, retrying and updating. Then the same run again, to its
end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from r3l.config import Config
from r3l.store.check import check_run
from r3l.store.stage import Store
from tests.flows.small import served_config
from tests.support.prefect_world import ENDED, PREFECT, Served, served, wait
from tests.support.scripted_player import GUIDED, ScriptedPlayer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
REGISTER = [[PREFECT, "work-pool", "create", "r3l", "--type", "process"], [PREFECT, "--no-prompt", "deploy", "--all"]]
STAGES = ("base", "reflections", "retries", "updates")
ORDER = ["tasks", "base", "oracle_pivots", "reflections", "retries", "distilled", "credit", "training_rows", "updates"]
START_S = 300.0  # of a run on a busy machine, until it has reached a stage


class Halting(ScriptedPlayer):
    """A sampling server that stops answering when it is asked for a reply of one stage."""

    def __init__(self, stage: str) -> None:
        self.stage, self.reached, self.going_on = stage, threading.Event(), threading.Event()
        super().__init__()

    def reply(self, prompt: list[int], seed: int) -> str:
        text = self.chat.tokenizer.decode(prompt)
        asked = (
            "reflections"
            if text.startswith("<|system|>You are a Reflector")
            else "retries"
            if GUIDED in text
            else "base"
        )
        if asked == self.stage and not self.going_on.is_set():
            self.reached.set()
            self.going_on.wait(90)
        return super().reply(prompt, seed)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("prefect"), REGISTER, AWS_SECRET_ACCESS_KEY="planted") as found:
        yield found


@pytest.fixture
def player(request: pytest.FixtureRequest) -> Iterator[Halting]:
    found = Halting(request.node.callspec.params["stage"])
    yield found
    found.going_on.set()
    found.stop()


def config_of(root: Path, url: str, *more: str) -> Config:
    given = ("method.retry_when=always", "environment.max_turns=12", "rollout.tasks=4")
    return served_config(root, url, *given, *more, iteration=0)


def command(config: Config) -> list[str]:
    """`r3l iterate` with these settings."""
    code = (
        "import sys; from flows import prefect_settings; prefect_settings.apply(quiet=True)\n"
        "from flows.cli.app import end_on_hangup; end_on_hangup()\n"
        "from r3l.config import Config; from r3l.errors import Interrupted\nfrom flows.cli.terminal import "
        "run_iteration\ntry: run_iteration(Config.model_validate_json(sys.argv[1]))\n"
        "except Interrupted as ended: print('ended:', ended, file=sys.stderr); sys.exit(130)"
    )
    return [sys.executable, "-c", code, config.model_dump_json()]


def in_the_middle(player: Halting, stage: str, root: Path, of: Callable[[], psutil.Process]) -> None:
    """Wait until the run in `root` is at work on the stage, and hold it there. `of`: a process above the update's."""
    if stage != "updates":
        assert player.reached.wait(START_S), f"{stage} was not reached"
        return
    until = time.monotonic() + START_S
    while not any(root.rglob("job.json")):
        assert time.monotonic() < until, "no update job"
        time.sleep(0.02)
    updates = [one for one in of().children(recursive=True) if "r3l.training" in " ".join(one.cmdline())]
    (first,) = [one for one in updates if one.ppid() not in {other.pid for other in updates}]
    first.suspend()  # the step of so small a policy would be done before a cancel is seen; its other ranks wait for it


def newest(server: Served, known: set[str]) -> dict[str, Any]:
    return next(run for run in server.asked("flow_runs", sort="START_TIME_DESC") if run["id"] not in known)


def final(server: Served, known: set[str]) -> dict[str, Any] | None:
    state = newest(server, known)["state"]
    return state if state["type"] in ENDED else None


def nothing_is_committed(root: Path, stage: str) -> Store:
    store = Store.open(str(root))
    there = {ref.stage for ref in store.stages("small", "", 0)}
    assert not there & set(ORDER[ORDER.index(stage) :]), there
    return store


def and_again(config: Config, store: Store, server: Served) -> None:
    """The same run, undisturbed: it goes on from what is stored."""
    before = {(ref.stage, ref.shard): ref.digest for ref in store.stages("small", "", 0)}
    subprocess.run(command(config), env=server.environment, check=True, capture_output=True, timeout=START_S)
    after = {(ref.stage, ref.shard): ref.digest for ref in store.stages("small", "", 0)}
    assert before.items() <= after.items()
    assert ("updates", None) in after
    assert check_run(store, "small") == []


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("way", ["Ctrl-C", "SIGTERM", "SIGHUP", "cancel"])
def test_a_run_in_a_terminal_ends_cleanly_when_interrupted(server, player, tmp_path, stage, way):
    known = {run["id"] for run in server.asked("flow_runs")}
    config = config_of(tmp_path, player.url)
    with subprocess.Popen(
        command(config), env=server.environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        in_the_middle(player, stage, tmp_path, lambda: psutil.Process(run.pid))
        if way == "Ctrl-C":
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does it: the whole group
        elif way.startswith("SIG"):
            run.send_signal(signal.Signals[way])
        else:
            server.cancel(newest(server, known))
        said = run.communicate(timeout=60)[1]
    assert run.returncode == 130, said
    state = final(server, known)
    assert state is not None
    assert state["type"] == "CANCELLED", state
    assert "Traceback" not in said
    assert "Crash detected" not in said
    assert said.count("ended:") == 1, said
    player.going_on.set()
    and_again(config, nothing_is_committed(tmp_path, stage), server)


@pytest.mark.parametrize("stage", ["base", "reflections", "retries"])
def test_sampling_servers_that_go_away(server: Served, player: Halting, tmp_path: Path, stage: str) -> None:
    known = {run["id"] for run in server.asked("flow_runs")}
    config = config_of(tmp_path, player.url, "engine.timeout_s=3")
    with subprocess.Popen(command(config), env=server.environment, stderr=subprocess.PIPE, text=True) as run:
        in_the_middle(player, stage, tmp_path, lambda: psutil.Process(run.pid))
        player.stop()
        player.going_on.set()
        said = run.communicate(timeout=120)[1]
    assert run.returncode not in {0, 130}, said
    state = final(server, known)
    assert state is not None
    assert (state["type"], "no server runs the policy" in state["message"]) == ("FAILED", True), state
    other = ScriptedPlayer()
    try:
        store = nothing_is_committed(tmp_path, stage)
        and_again(config_of(tmp_path, other.url), store, server)
    finally:
        other.stop()


@pytest.mark.parametrize("stage", STAGES)
def test_a_deployed_run_ends_cleanly_when_cancelled_in_the_ui(server, player, tmp_path, stage):
    known = {run["id"] for run in server.asked("flow_runs")}
    config = config_of(tmp_path, player.url)
    parameters = json.dumps({"config": json.loads(config.model_dump_json())})
    server.prefect("deployment", "run", "r3l/iterate", "--params", parameters)
    in_the_middle(player, stage, tmp_path, lambda: worker_of(server))
    server.cancel(newest(server, known))
    state = wait("the end", 60, lambda: final(server, known))
    assert state["type"] == "CANCELLED", state
    lines = [
        one["message"] for one in server.asked("logs", logs={"flow_run_id": {"any_": [newest(server, known)["id"]]}})
    ]
    assert not [line for line in lines if "Crash detected" in line], lines
    player.going_on.set()
    and_again(config, nothing_is_committed(tmp_path, stage), server)


def worker_of(server: Served) -> psutil.Process:
    """The worker's process: the flow run is below it."""
    found = [
        one
        for one in psutil.process_iter(["cmdline"])
        if "worker start --pool r3l" in " ".join(one.info["cmdline"] or [])
    ]
    return next(one for one in found if one.environ().get("PREFECT_API_URL") == server.api)


@pytest.mark.parametrize("stage", ["base"])
def test_a_killed_run_leaves_no_server_and_is_mended_by_the_next(player: Halting, tmp_path: Path, stage: str) -> None:
    """On an ephemeral server: Ctrl-C ends a run as Cancelled, SIGKILL leaves it RUNNING, the next start crashes it."""
    config = config_of(tmp_path / "store", player.url)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PREFECT_HOME": str(tmp_path / "prefect")}

    def begun() -> tuple[subprocess.Popen[str], list[psutil.Process]]:
        player.reached.clear()
        run = subprocess.Popen(
            command(config), env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert player.reached.wait(START_S)
        return run, psutil.Process(run.pid).children(recursive=True)

    run, below = begun()
    os.killpg(run.pid, signal.SIGINT)
    said = run.communicate(timeout=60)[1]
    assert run.returncode == 130, said
    run, below = begun()
    servers = [one for one in below if "flows.serving.tied" in " ".join(one.cmdline())]
    assert servers
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    _, alive = psutil.wait_procs(below, timeout=20)
    assert not alive, alive
    player.going_on.set()
    subprocess.run(command(config), env=environment, check=True, capture_output=True, timeout=START_S)
    states = subprocess.run(
        [sys.executable, "-c", STATES], env=environment, check=True, capture_output=True, text=True, timeout=240
    ).stdout.splitlines()[-1]
    assert sorted(json.loads(states)) == ["CANCELLED", "COMPLETED", "CRASHED"]
    assert check_run(Store.open(str(tmp_path / "store")), "small") == []


STATES = """
import json
from flows import prefect_settings; prefect_settings.apply(quiet=True)
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    print(json.dumps([run.state.type.value for run in client.read_flow_runs()]))
"""

"""vLLM servers as children, against a stand-in in an environment of its own: start, key, log, sleep, death, and nothing
left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from r3l.config.engines import VllmServerSettings
from r3l.config.sections import PolicySettings
from r3l.engines import make_engine
from r3l.engines.base import Hosting, PolicySnapshot, Sampling, Sleeping
from r3l.engines.vllm.own_servers import OwnServers
from r3l.errors import EngineError, ServerAway
from tests.support.stand_in import ROOT, environment
from tests.unit.scripted_vllm import STOP, scripted_reply

FULL = PolicySnapshot("policies/7", "d7")
ADAPTER = PolicySnapshot("policies/8", "d8", "policies/7")
PATIENCE_S = 120.0  # of the slowest machine; nothing is measured by it
HOW = Sampling(1.0, 20, 3, (STOP,))


def until(true: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def group_of(leader: int) -> list[psutil.Process]:
    """The processes of a server's group that live."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.Error):
            continue
    return found


def leaders(engine: OwnServers) -> list[int]:
    return [one.process.pid for one in engine.processes if one.process is not None]


def kill_vllm(engine: OwnServers, place: int = 0) -> None:
    """SIGKILL to the server itself, as the kernel does it when memory runs out."""
    leader = leaders(engine)[place]
    next(
        one for one in group_of(leader) if "api_server" in " ".join(one.cmdline())[-4000:] and one.pid != leader
    ).kill()


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = environment(tmp_path / "vllm-environment")
    monkeypatch.setenv("R3L_VLLM_PYTHON", str(found))
    return found


@pytest.fixture
def engine(python: Path, tmp_path: Path) -> Iterator[Callable[..., OwnServers]]:
    made: list[OwnServers] = []

    def make(policy: PolicySettings | None = None, **settings: Any) -> OwnServers:
        asked = {"gpus": "0", "timeout_s": PATIENCE_S, "start_s": PATIENCE_S, "sleep": 1}
        found = make_engine(VllmServerSettings(**(asked | settings)), policy or PolicySettings())
        assert isinstance(found, OwnServers)
        found.attach(tmp_path / "run" / "logs", lambda *said: found.__dict__.setdefault("said", []).append(said))
        made.append(found)
        return found

    yield make
    for one in made:
        one.close()


def reply(engine: OwnServers, policy: str) -> None:
    done = engine.complete("iteration=0/task=1", [5, 6, 7], HOW).result(timeout=PATIENCE_S)
    assert done.token_ids == scripted_reply([5, 6, 7], policy, 20, 3)


def test_a_server_per_gpu_starts_with_the_policy_and_leaves_nothing_behind(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "of the user")
    monkeypatch.setenv("R3L_VLLM_OPTIONS", "--seed 3")
    own = engine(PolicySettings(adapter="lora", lora_rank=20, context_tokens=512), gpus="4,5")
    assert isinstance(own, Hosting)
    assert isinstance(own, Sleeping)
    own.load_policy(ADAPTER)
    reply(own, "policies/8")
    for gpu, server in zip("45", own.processes, strict=True):
        log = (tmp_path / "run" / "logs" / f"vllm-gpu{gpu}.log").read_text()
        assert f"GPU {gpu}: policies/7" in log
        assert "'--max-lora-rank', '32'" in log
        assert "'--gpu-memory-utilization', '0.9'" in log
        assert "'--seed', '3'" in log
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        assert httpx.get(f"{server.url}/v1/models", headers={"Authorization": f"Bearer {server.key}"}).is_success
        guard = psutil.Process(server.process.pid)
        assert server.key not in " ".join(guard.cmdline())
        assert "HF_TOKEN" not in guard.environ()
    groups = leaders(own)
    assert all(len(group_of(leader)) == 3 for leader in groups), "guard, server, the server's engine process"
    own.close()
    until(lambda: not any(group_of(leader) for leader in groups), "processes are left")


def test_the_gpus_are_those_that_this_process_sees(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,6")
    own = engine(gpus="1")
    own.load_policy(FULL)
    assert "GPU 6: policies/7" in (tmp_path / "run" / "logs" / "vllm-gpu1.log").read_text()
    with pytest.raises(EngineError, match=r"names GPU 4, and CUDA_VISIBLE_DEVICES shows 2"):
        engine(gpus="4").load_policy(FULL)


def test_what_keeps_it_from_starting_is_said(engine, monkeypatch):
    with monkeypatch.context() as other:
        other.setenv("R3L_VLLM_PYTHON", "nowhere/bin/python")
        with pytest.raises(EngineError, match=r"there is no .*/nowhere/bin/python.*uv venv .*nowhere.* install .*vllm"):
            engine()
    monkeypatch.setenv("VLLM_STAND_IN", "broken")
    own = engine()
    with pytest.raises(
        EngineError, match=r"did not start: RuntimeError: the GPU has no room; its log is .*vllm-gpu0.log"
    ):
        own.load_policy(FULL)


def test_a_server_that_dies_is_started_again_and_given_the_policy(engine: Callable[..., OwnServers]) -> None:
    own = engine()
    own.load_policy(PolicySnapshot("policies/0", "d0"))
    own.load_policy(FULL)
    before = leaders(own)[0]
    kill_vllm(own)
    until(lambda: leaders(own)[0] != before, "no restart")
    reply(own, "policies/7")
    until(lambda: not group_of(before), "the dead server's engine process is left")
    [(event, subject, reason, _)] = own.said  # type: ignore[attr-defined]
    assert (event, reason) == ("engine_restarted", "vLLM on GPU 0 died")
    assert subject.startswith("http://127.0.0.1:")
    second = leaders(own)[0]
    os.kill(second, signal.SIGKILL)  # the guard: the kernel ends the server, and this process its engine process
    until(lambda: leaders(own)[0] != second, "no second restart")
    reply(own, "policies/7")
    until(lambda: not group_of(second), "processes of the killed guard are left")


def test_one_that_dies_too_often_is_given_up_with_its_last_words(engine, monkeypatch):
    own = engine(restarts=1)
    own.load_policy(FULL)
    monkeypatch.setenv("VLLM_STAND_IN", "broken")
    kill_vllm(own)
    until(lambda: own.processes[0].deaths == 2, "it was not given up")
    with pytest.raises(ServerAway, match=r"runs the policy: vLLM died 2 times, of RuntimeError: the GPU has no room"):
        own.complete("iteration=0/task=1", [5, 6, 7], HOW).result(timeout=PATIENCE_S)


@pytest.mark.parametrize("level", [1, 2])
def test_it_sleeps_for_the_update_and_wakes_with_the_next_policy(engine: Callable[..., OwnServers], level: int) -> None:
    own = engine(PolicySettings(adapter="lora"), sleep=level)
    own.load_policy(ADAPTER)
    own.sleep()
    with pytest.raises(EngineError, match="the servers sleep"):
        own.complete("iteration=0/task=1", [5, 6, 7], HOW).result(timeout=PATIENCE_S)
    own.load_policy(ADAPTER)
    reply(own, "policies/8")
    own.sleep()
    asleep = leaders(own)[0]
    kill_vllm(own)  # its GPU is the update's now: it is not started again
    until(lambda: not own.processes[0].alive, "it lives")
    own.load_policy(FULL)
    assert leaders(own)[0] != asleep
    reply(own, "policies/7")


def test_no_server_outlives_a_run_that_is_killed(python: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from r3l.config.engines import VllmServerSettings\n"
        "from r3l.config.sections import PolicySettings; from r3l.engines import make_engine\n"
        "from r3l.engines.base import PolicySnapshot\n"
        "engine = make_engine(VllmServerSettings(gpus='0,1'), PolicySettings())\n"
        "engine.attach(Path(sys.argv[1]), lambda *_: None); engine.load_policy(PolicySnapshot('p', 'd'))\n"
        "print(*[one.process.pid for one in engine.processes], flush=True); time.sleep(3600)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert run.stdout is not None
    with run:
        groups = [int(leader) for leader in run.stdout.readline().split()]
        assert [len(group_of(leader)) for leader in groups] == [3, 3]
        run.kill()
    until(lambda: not any(group_of(leader) for leader in groups), "processes outlive the run")

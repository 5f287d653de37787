"""The pool under faults: what hangs or dies is a failed call, and the rest goes on."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from r3l import plugins
from r3l.config import compose
from r3l.config.environments import AlfworldSettings, HouseholdSettings
from r3l.environments.kinds import make_world
from r3l.environments.workers.pool import WorldPool
from r3l.environments.workers.process import START_TIMEOUT_S, WorkerProcess
from r3l.environments.workers.surviving import SURVIVED
from r3l.errors import Interrupted, SessionLost, WorldError
from r3l.pipeline.tools import Tools
from r3l.records import Task

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> AlfworldSettings:
    root = tmp_path_factory.mktemp("tasks")
    return AlfworldSettings(data_root=str(root), train_games=4, heldout_games=1, workers=1, step_timeout_s=30)


@pytest.fixture(scope="module")
def tasks(settings: AlfworldSettings) -> list[Task]:
    return make_world(settings).tasks("train")


@pytest.fixture
def pool(settings: AlfworldSettings) -> Iterator[WorldPool]:
    with WorldPool(settings) as pool:
        yield pool


@pytest.fixture(scope="module")
def calm(settings: AlfworldSettings) -> Iterator[WorldPool]:
    """For tests after which its worker is as it was before."""
    with WorldPool(settings) as pool:
        yield pool


def counted(pool: WorldPool, before: dict[str, int]) -> dict[str, int]:
    """What the pool has done since."""
    return {name: count - before[name] for name, count in pool.counts().items()}


def test_sessions_from_many_threads_do_not_mix(calm: WorldPool, tasks: list[Task]) -> None:
    pool, before = calm, calm.counts()

    def play(number: int) -> list[str]:
        task, session = tasks[number % len(tasks)], f"session {number}"
        seen = pool.start(session, task).result(60)
        texts = [seen.text]
        for turn in range(6):
            seen = pool.step(session, seen.admissible[turn % len(seen.admissible)]).result(60).observation
            texts.append(seen.text)
        pool.end(session).result(60)
        return texts

    with ThreadPoolExecutor(8) as threads:
        episodes = list(threads.map(play, range(12)))
    assert episodes[0:4] == episodes[4:8] == episodes[8:12]
    assert len({tuple(episode) for episode in episodes}) == 4
    assert counted(pool, before) == {"steps": 72, "restores": 0, "replays": 0, "restarts": 0}


def test_a_closing_pool_interrupts_its_calls_and_they_are_no_faults_of_the_world(settings, tasks):
    pool = WorldPool(settings)
    pool.start("a", tasks[0]).result(60)
    os.kill(pool.workers[0].process.pid, signal.SIGSTOP)
    step = pool.step("a", "look")
    threading.Thread(target=pool.close, daemon=True).start()
    with pytest.raises(Interrupted, match="step of a: the environment's workers were closed"):
        step.result(60)
    with pytest.raises(Interrupted):
        pool.start("b", tasks[0]).result(60)
    pool.close()


def test_signals_for_a_whole_terminal_do_not_reach_a_worker(calm: WorldPool, tasks: list[Task]) -> None:
    pool = calm
    pool.start("a", tasks[0]).result(60)
    worker = pool.workers[0].process.pid
    assert os.getpgid(worker) != os.getpgid(0)
    os.kill(worker, signal.SIGTERM)
    os.kill(worker, signal.SIGINT)
    assert pool.step("a", "look").result(60).observation.text
    assert pool.counts()["restarts"] == 0


def test_a_rollback_through_the_pool_sees_the_same_observations(calm: WorldPool, tasks: list[Task]) -> None:
    pool, before = calm, calm.counts()
    seen = pool.start("base", tasks[0]).result(60)
    actions, texts = [], [seen.text]
    for turn in range(5):
        actions.append(seen.admissible[turn])
        seen = pool.step("base", actions[-1]).result(60).observation
        texts.append(seen.text)
    pool.end("base")
    rollback = pool.rollback("retry", tasks[0], actions[:3], texts[:4]).result(60)
    assert (rollback.diverged_at, rollback.observations) == (None, texts[:4])
    assert pool.step("retry", actions[3]).result(60).observation.text == texts[4]
    wrong = pool.rollback("retry", tasks[0], actions[:3], [*texts[:2], "elsewhere", texts[3]]).result(60)
    assert wrong.diverged_at == 2
    assert counted(pool, before)["restores"] == 1
    with pytest.raises(ValueError, match="3 actions need 4 observations"):
        pool.rollback("retry", tasks[0], actions[:3], texts[:2])


def test_a_hang_costs_its_own_session_and_the_others_of_the_worker_go_on(settings, tasks):
    with WorldPool(settings) as pool:
        pool.start("hangs", tasks[0]).result(60)
        actions = pool.start("beside", tasks[1]).result(60).admissible[:3]
        undisturbed = [pool.step("beside", action).result(60) for action in actions]
        pool.start("beside", tasks[1]).result(60)
        pool.step("beside", actions[0]).result(60)
        pool.settings = settings.model_copy(update={"step_timeout_s": 1.0})
        os.kill(pool.workers[0].process.pid, signal.SIGSTOP)
        hanging, waiting = pool.step("hangs", "look"), pool.step("beside", actions[1])
        new = pool.start("new", tasks[1])
        with pytest.raises(WorldError, match=rf"task {tasks[0].task_id}, step of hangs: no answer within 1 s; its"):
            hanging.result(30)
        pool.settings = settings
        assert waiting.result(60) == undisturbed[1]
        assert new.result(60).text.startswith("You are in the middle")
        assert pool.step("beside", actions[2]).result(60) == undisturbed[2]
        assert pool.counts()["restarts"] == 1


def test_a_worker_that_has_not_answered_yet_is_told_by_the_time_that_it_had(pool: WorldPool) -> None:
    (worker,) = pool.workers[:1]
    worker.ready = True
    assert worker.allowed_s(1.0) == 1.0
    worker.ready = False
    assert worker.allowed_s(1.0) == START_TIMEOUT_S


def test_a_world_that_kills_every_worker_fails_each_call_in_the_end(pool: WorldPool, tasks: list[Task]) -> None:
    alive_one = pool.worker_of

    def doomed(task: Task) -> WorkerProcess:
        worker = alive_one(task)
        worker.stop("it died")
        return worker

    pool.start("a", tasks[0]).result(60)
    pool.worker_of = doomed  # type: ignore[assignment]
    with pytest.raises(SessionLost, match="it died"):
        pool.start("b", tasks[0]).result(60)
    assert pool.counts()["restarts"] == SURVIVED


@pytest.mark.parametrize("limit", [0.5, 60])
def test_an_episode_has_a_deadline(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.NAMED, "tests.support.slow_world:SlowWorld")
    config = compose(environment="tests.support.slow_world:SlowWorld", assignments=[f"environment.episode_s={limit}"])
    task = make_world(config.environment).tasks("train")[0]
    with WorldPool(config.environment, workers=1) as pool:
        for session in ("first", "second"):
            pool.start(session, task).result(60)
        taken = [pool.step("first", "wait 0.3").result(60) for _ in range(2)]
        assert not any(step.done for step in taken)
        if limit < 1:
            with pytest.raises(
                WorldError, match=r"took 0\.6.* s for this episode so far, environment.episode_s allows"
            ):
                pool.step("first", "wait 0").result(60)
            with pytest.raises(WorldError, match=r"no answer within 0\.5 s"):
                pool.step("second", "wait 30").result(60)
        assert pool.start("third", task).result(60).text == "Wait."
        assert pool.step("third", "end").result(60).done


def test_a_killed_worker_fails_its_sessions_and_is_replaced(pool: WorldPool, tasks: list[Task]) -> None:
    incidents: list[tuple[str, str]] = []
    pool.on_restart = lambda worker, reason: incidents.append((worker, reason))
    pool.start("dies", tasks[0]).result(60)
    os.kill(pool.workers[0].process.pid, signal.SIGSTOP)
    step = pool.step("dies", "look")
    os.kill(pool.workers[0].process.pid, signal.SIGKILL)
    with pytest.raises(WorldError, match=rf"{tasks[0].task_id}.*exit status -9"):
        step.result(30)
    assert pool.start("again", tasks[0]).result(60).text.startswith("You are in the middle")
    assert pool.counts()["restarts"] == 1
    [(worker, reason)] = incidents
    assert worker == "worker=0"
    assert "exit status -9" in reason
    assert "step of dies" in reason


def test_what_starts_early_is_what_a_stage_finds_later() -> None:
    config = compose(assignments=["environment.workers=1"], environment="household")
    with closing(Tools()) as tools:
        tools.begin(config)
        while not tools._pools:
            time.sleep(0.05)
        begun = next(iter(tools._pools.values()))
        assert tools.pool(config) is begun
        assert tools.engine(config) is tools.engine(config)


def test_an_engine_that_takes_a_gpu_does_not_start_early() -> None:
    config = compose(assignments=["engine.kind=vllm_server"], environment="household")
    with closing(Tools()) as tools:
        tools.begin(config)
        assert not [thread for thread in threading.enumerate() if thread.name == "r3l-early"]
        assert not tools._pools


def test_a_run_stores_the_worker_that_a_fresh_one_replaced() -> None:
    config = compose(assignments=["environment.workers=1"], environment="household")
    with closing(Tools()) as tools:
        pool = tools.pool(config)
        task = make_world(config.environment).tasks("train")[0]
        pool.start("dies", task).result(60)
        os.kill(pool.workers[0].process.pid, signal.SIGSTOP)
        step = pool.step("dies", "look")
        os.kill(pool.workers[0].process.pid, signal.SIGKILL)
        with pytest.raises(WorldError):
            step.result(30)
        pool.start("again", task).result(60)
        [event] = tools.incidents.taken(3, "base")
    assert (event.iteration, event.stage, event.event, event.subject_id) == (3, "base", "worker_restarted", "worker=0")
    assert "exit status -9" in event.reason


def test_errors_of_an_environment_are_messages(calm: WorldPool, tasks: list[Task]) -> None:
    pool = calm
    broken = Task(**{**{name: getattr(tasks[0], name) for name in Task.__slots__}, "payload": '{"game": "nowhere"}'})
    with pytest.raises(WorldError, match=r"no game at .*nowhere"):
        pool.start("broken", broken).result(60)
    with pytest.raises(WorldError, match="no session never"):
        pool.step("never", "look").result(60)
    assert pool.end("never").result(60) is None
    assert pool.counts()["restarts"] == 0


def test_workers_end_with_a_parent_that_was_killed(settings: AlfworldSettings) -> None:
    script = (
        "import sys, time; from r3l.config.environments import AlfworldSettings; from r3l.environments.workers.pool "
        "import WorldPool\npool = WorldPool(AlfworldSettings(workers=2))\n"
        "print(*[worker.process.pid for worker in pool.workers], flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    limit = time.monotonic() + 20
    while any(alive(pid) for pid in workers) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_answer_that_can_not_be_read_fails_its_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = HouseholdSettings(workers=1)
    task = make_world(world).tasks("train")[0]
    with WorldPool(world) as pool:
        monkeypatch.setattr("r3l.environments.workers.pool.Rollback", lambda: None)
        with pytest.raises(WorldError, match="an answer that can't be read"):
            pool.rollback("a", task, [], [""]).result(60)
        assert "Your task" in pool.start("b", task).result(60).text


def _open_files() -> set[str]:
    """Name what this process has open by pipe or inode, so that a file closed by somebody else changes no count."""
    targets = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own descriptor is closed by now
            targets.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return targets


def test_a_closed_pool_leaves_no_pipe_open(settings: AlfworldSettings) -> None:
    """Without waiting for the garbage to be collected: a process that plays many iterations would run out of files."""
    gc.collect()  # what earlier tests left open is closed now, not in between
    gc.disable()
    try:
        open_before = _open_files()
        with WorldPool(settings) as pool:
            pool.end("nobody").result(60)
        for _ in range(200):  # the reader of a worker's answers ends a moment after the worker
            if not _open_files() - open_before:
                break
            time.sleep(0.05)
        assert not _open_files() - open_before
    finally:
        gc.enable()

"""Environments in worker processes under a watchdog: a hang or a crash in one is a failed call, never an outage."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from r3l.config.environments import EnvironmentSettings
from r3l.environments.base import Observation, Rollback, Step, Verdict
from r3l.environments.workers.process import WorkerProcess
from r3l.environments.workers.surviving import chain, surviving
from r3l.errors import WorldError
from r3l.records import Task

WATCH_EVERY_S = 0.25


@dataclass(slots=True)
class Home:
    """Where a session is, and the way it went: what a fresh worker repeats if this one is lost."""

    worker: WorkerProcess
    task: Task
    actions: list[str] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)


class WorldPool:
    """Sessions of one environment, spread over worker processes by task. Every method may be called from many threads.

    A session is an episode in progress. All sessions of a task are in the same worker, so that rollbacks find the
    snapshots that earlier sessions left. A call that takes longer than `step_timeout_s` or `episode_s`, or in which a
    worker dies, fails with `WorldError`. A fresh worker takes the place of the old one, and the other sessions that
    were in it are played there again to where they stood. Where the site of a remote environment does not answer, the
    call fails with `ServerAway`.
    """

    def __init__(
        self,
        settings: EnvironmentSettings,
        workers: int | None = None,
        on_restart: Callable[[str, str], None] = lambda worker, reason: None,
    ) -> None:
        """`on_restart(worker, reason)` is called, from any thread, for each worker that a fresh one replaces."""
        self.settings, self.on_restart = settings, on_restart
        self.lock = threading.Lock()
        self.numbers = count()
        self.totals: Counter[str] = Counter()
        self.homes: dict[str, Home] = {}  # of each session
        self.workers = [self.spawn() for _ in range(workers or settings.workers)]
        self.closed = threading.Event()
        threading.Thread(target=self.watch, daemon=True).start()

    def start(self, session_id: str, task: Task) -> Future[Observation]:
        """Start a new session at the start of `task`."""

        def ask() -> Future[Observation]:
            home = self.home(session_id, task)

            def began(value: dict[str, Any]) -> Observation:
                home.observations = [value["text"]]
                return opening(value)

            return self.call(home.worker, "start", session_id, task.task_id, began, task=asdict(task))

        return surviving(ask)

    def step(self, session_id: str, action: str) -> Future[Step]:

        def ask() -> Future[Step]:
            with self.lock:
                home = self.homes.get(session_id)
            if home is None:
                return failed_future(f"no session {session_id}: it was never started, or it has ended")
            if not (home.worker.lost and home.observations):
                return self.take(session_id, home, action)
            # Another session's call took the worker down: go the same way in a fresh one first.
            again = self.rollback(session_id, home.task, home.actions, home.observations)
            return chain(
                again, lambda back: ask() if back.diverged_at is None else failed_future(apart(session_id, back))
            )

        return surviving(ask)

    def take(self, session_id: str, home: Home, action: str) -> Future[Step]:
        def stepped(value: dict[str, Any]) -> Step:
            step = Step(**{**value, "observation": opening(value["observation"])})
            home.actions.append(action)
            home.observations.append(step.observation.text)
            return step

        return self.call(home.worker, "step", session_id, home.task.task_id, stepped, action=action)

    def rollback(self, session_id: str, task: Task, actions: list[str], observations: list[str]) -> Future[Rollback]:
        """Start a new session `session_id` of `task`, in the state after `actions`, every observation on the way
        compared.

        observations[k] was recorded before action k; observations[len(actions)] is the one at the pivot. An action ""
        stands for a turn whose reply was malformed: it never reached the environment, and the observation after it
        (the error text) is taken as recorded. States come from snapshots where an earlier session of the task went
        the same way in the same worker, else by taking the actions again. Where `diverged_at` is not None the session
        does not exist.
        """
        if len(observations) != len(actions) + 1:
            raise ValueError(
                f"rollback of {session_id}: {len(actions)} actions need {len(actions) + 1} observations, "
                f"got {len(observations)}"
            )
        way = {"actions": list(actions), "observations": list(observations)}

        def ask() -> Future[Rollback]:
            home = self.home(session_id, task)

            def arrived(value: dict[str, Any]) -> Rollback:
                home.actions, home.observations = list(way["actions"]), list(way["observations"])
                return Rollback(**value)

            return self.call(home.worker, "rollback", session_id, task.task_id, arrived, task=asdict(task), **way)

        return surviving(ask)

    def ask_oracle(self, name: str, task: Task, actions: list[str], observations: list[str]) -> Future[Verdict]:
        """Ask what the environment's oracle says of a failed episode; arguments as of `rollback`, `name` is for
        messages.

        It fails with `WorldError` where the environment has no oracle (`r3l.environments.kinds.has_oracle`).
        """
        call_arguments = {"task": asdict(task), "actions": actions, "observations": observations}
        return surviving(
            lambda: self.call(
                self.worker_of(task), "oracle", name, task.task_id, lambda value: Verdict(**value), **call_arguments
            )
        )

    def ask_hints(self, name: str, task: Task) -> Future[list[str]]:
        """Ask for the hints of a task, from vague to precise; empty where it has none. `name` is for messages."""
        return surviving(lambda: self.call(self.worker_of(task), "hints", name, task.task_id, list, task=asdict(task)))

    def end(self, session_id: str) -> Future[None]:
        """Forget a session, whose environment is used again. Do nothing if there is none."""
        with self.lock:
            home = self.homes.pop(session_id, None)
        if home is None or home.worker.lost:
            future: Future[None] = Future()
            future.set_result(None)
            return future
        return self.call(home.worker, "end", session_id, home.task.task_id, lambda value: None)

    def counts(self) -> dict[str, int]:
        """Report the running totals: steps, restores, replays (rollbacks by snapshot, by taking actions again),
        restarts of workers."""
        with self.lock:
            return {name: self.totals[name] for name in ("steps", "restores", "replays", "restarts")}

    def close(self) -> None:
        """Stop all workers. Open calls and later ones fail with `Interrupted`: what they were part of is no row."""
        self.closed.set()
        for worker in self.workers:
            worker.let_go()
        for worker in self.workers:
            worker.close()

    def __enter__(self) -> WorldPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def call(
        self,
        worker: WorkerProcess,
        name: str,
        session_id: str,
        task_id: str,
        convert: Callable[[Any], Any],
        **arguments: Any,
    ) -> Future[Any]:
        message = {"call": name, "session": session_id, **arguments}
        return worker.call(next(self.numbers), f"task {task_id}, {name} of {session_id}", convert, message)

    def home(self, session_id: str, task: Task) -> Home:
        home = Home(self.worker_of(task), task)
        with self.lock:
            self.homes[session_id] = home
        return home

    def worker_of(self, task: Task) -> WorkerProcess:
        # by the task and not by who is free: all sessions of a task share one worker's snapshots
        slot = int.from_bytes(hashlib.blake2b(task.task_id.encode(), digest_size=8).digest(), "big") % len(self.workers)
        if self.workers[slot].lost:
            self.replace(self.workers[slot])
        with self.lock:
            return self.workers[slot]

    def spawn(self) -> WorkerProcess:
        return WorkerProcess(self.settings.model_dump_json(), self.add_counts, self.replace)

    def add_counts(self, counts: dict[str, int]) -> None:
        with self.lock:
            self.totals.update(counts)

    def replace(self, worker: WorkerProcess) -> None:
        """Put a fresh worker in the place of one that is gone."""
        with self.lock:
            # two threads may find the same dead worker: only the first replaces it
            if self.closed.is_set() or worker.closing or worker not in self.workers:
                return
            slot = self.workers.index(worker)
            self.workers[slot] = self.spawn()
            self.totals["restarts"] += 1
        self.on_restart(f"worker={slot}", worker.lost)

    def watch(self) -> None:
        while not self.closed.wait(WATCH_EVERY_S):
            limit = min(self.settings.step_timeout_s, self.settings.episode_s)
            for worker in list(self.workers):
                if worker.overdue(limit):
                    worker.stop(f"no answer within {worker.allowed_s(limit):g} s")


def opening(value: dict[str, Any]) -> Observation:
    return Observation(value["text"], tuple(value["admissible"]), value["role"])


def apart(session_id: str, back: Rollback) -> str:
    return f"{session_id} lost its worker, and played again it saw something else at turn {back.diverged_at}"


def failed_future(message: str) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(WorldError(message))
    return future

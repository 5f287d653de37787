"""A worker process: ``python -m r3l.environments.workers.worker``. JSON lines in, JSON lines out, over its standard
pipes.

    first line   {"world": <settings>}                              -> {"ready": true}
    then         {"id": 7, "call": "step", "session": ..., ...}     -> {"id": 7, "value": ..., "counts": {...}}
                                                                     or {"id": 7, "error": "...", "away": false}

It ends when its input ends, so it never outlives the process that started it, however that one was stopped.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NoReturn, TextIO

from pydantic import TypeAdapter

from r3l import plugins
from r3l.config.environments import AnyEnvironment, EnvironmentSettings
from r3l.environments.base import Environment, Hinting, Waiting
from r3l.environments.kinds import make_world, verdict_of
from r3l.environments.outside import checked_verdict, hints_of, message_of
from r3l.environments.workers.sessions import Session, Sessions
from r3l.errors import ServerAway, WorldError
from r3l.records import Task
from r3l.system.line_process import private_output, write

Call = dict[str, Any]


def main() -> None:
    # what ends it is the end of its input, so that no call ends as a fault of the world
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answers = private_output()
    calls: queue.SimpleQueue[str] = queue.SimpleQueue()
    first = sys.stdin.readline()
    threading.Thread(target=read, args=(sys.stdin, calls), daemon=True).start()
    try:
        settings: AnyEnvironment = TypeAdapter(AnyEnvironment).validate_json(first)
        world = make_world(settings)
        lanes = [Sessions(world) for _ in range(world.tasks_at_once if isinstance(world, Waiting) else 1)]
        plugins.fulfilling(settings.kind, type(lanes[0].idle[0]), Environment)
    except BaseException as error:  # noqa: BLE001 - a world that can't be made: every call is told why
        refuse_all(answers, calls, f"the world can't be made: {message_of(error)}")
    if len(lanes) > 1:
        side_by_side(lanes, settings, answers, calls)
        return
    write(answers, {"ready": True})
    while True:
        write(answers, answer(lanes[0], settings, json.loads(calls.get())))


def refuse_all(answers: TextIO, calls: queue.SimpleQueue[str], why: str) -> NoReturn:
    """Answer every call with `why`, until the input ends."""
    write(answers, {"ready": True})
    while True:
        write(answers, {"id": json.loads(calls.get())["id"], "error": why})


def side_by_side(
    own: Sequence[Sessions], settings: EnvironmentSettings, answers: TextIO, calls: queue.SimpleQueue[str]
) -> None:
    """Give every task its thread, which it may share with others: a call waits for those of its own thread alone."""
    lanes: list[queue.SimpleQueue[Call]] = [queue.SimpleQueue() for _ in own]
    writing = threading.Lock()

    def take(lane: queue.SimpleQueue[Call], sessions: Sessions) -> None:
        while True:
            reply = answer(sessions, settings, lane.get())
            with writing:
                write(answers, reply)

    for lane, sessions in zip(lanes, own, strict=True):
        threading.Thread(target=take, args=(lane, sessions), daemon=True).start()
    with writing:
        write(answers, {"ready": True})
    of_session: dict[str, int] = {}
    while True:
        call = json.loads(calls.get())
        number = of_session.get(call["session"], 0)
        if "task" in call:
            # a task keeps its thread: its sessions share one tree, which one thread walks
            number = zlib.crc32(call["task"]["task_id"].encode()) % len(lanes)
        if call["call"] in {"start", "rollback"}:
            of_session[call["session"]] = number
        elif call["call"] == "end":
            of_session.pop(call["session"], None)
        lanes[number].put(call)


def read(source: TextIO, calls: queue.SimpleQueue[str]) -> None:
    """Read in a thread of its own, so that the end of input ends the process even in the middle of a step."""
    for line in source:
        calls.put(line)
    os._exit(0)


def answer(sessions: Sessions, settings: EnvironmentSettings, call: Call) -> dict[str, Any]:
    """Answer one call. Whatever an environment raises becomes a message: a bad episode is a row, not an outage."""
    before, began = sessions.counts.copy(), time.monotonic()
    try:
        refuse_late(sessions.sessions.get(call["session"]), call, settings.episode_s)
        value = perform(sessions, settings, call)
    # The one boundary where anything may come out of an engine, its own call of sys.exit too.
    except BaseException as error:  # noqa: BLE001
        sessions.sessions.pop(call["session"], None)
        return {"id": call["id"], "error": message_of(error), "away": isinstance(error, ServerAway)}
    if session := sessions.sessions.get(call["session"]):
        session.seconds += time.monotonic() - began
    return {"id": call["id"], "value": value, "counts": dict(sessions.counts - before)}


def refuse_late(session: Session | None, call: Call, limit: float) -> None:
    """Raise `WorldError` for a step of an episode for which the world has taken longer than it may: a world that
    answers every call just in time would hold its worker for hours."""
    if session and call["call"] == "step" and session.seconds > limit:
        raise WorldError(
            f"the world took {session.seconds:.3g} s for this episode so far, environment.episode_s allows {limit:g}"
        )


def perform(sessions: Sessions, settings: EnvironmentSettings, call: Call) -> dict[str, Any] | list[str] | None:
    name, session = call["call"], call["session"]
    if name == "start":
        return asdict(sessions.start(session, Task(**call["task"])))
    if name == "step":
        return asdict(sessions.step(session, call["action"]))
    if name == "rollback":
        return asdict(sessions.rollback(session, Task(**call["task"]), call["actions"], call["observations"]))
    if name == "oracle":
        return asdict(
            checked_verdict(verdict_of(settings, Task(**call["task"]), call["actions"], call["observations"]))
        )
    if name == "hints":
        world = sessions.world
        return hints_of(world.hints(Task(**call["task"]))) if isinstance(world, Hinting) else []
    sessions.end(session)
    return None


if __name__ == "__main__":
    main()

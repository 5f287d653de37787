"""An episode of a taskset: its task gives the prompt and the tools, its rewards the reward.

    begin   an episode runs beside the worker's calls, up to its first request -> the prompt
    act     the request is answered, and the episode runs to its next one      -> what was added to the conversation
    at the end the trace's reward

An episode is a program with servers of its own, which nobody can copy: rollbacks take the actions again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any

from r3l.config.environments.adapters import VerifiersSettings
from r3l.environments.adapters.episodes import CopiedEnvironment, Copies
from r3l.environments.adapters.texts import clean, share_of_range
from r3l.environments.base import Observation, Step
from r3l.environments.verifiers.conversation import added_observation, new_messages, opening_text, role_of, text_of
from r3l.errors import WorldError
from r3l.records import Task
from r3l.system.packages import import_package

HARNESS = "r3l_policy"  # the name that verifiers loads the policy's program by
COPIES = "an episode of verifiers 0.4 is a running program"


def load_taskset(settings: VerifiersSettings) -> Any:
    """Load the environment of the taskset that the settings name, with the policy in its one seat.

    Raises:
        WorldError: it is not there, its loading failed, or another program than a conversation plays it.
    """
    vf = import_package("verifiers.v1", "verifiers")
    sys.modules[HARNESS] = import_module("r3l.environments.verifiers.agent")  # verifiers takes no dotted name
    name = settings.env.replace(".", "_")
    try:
        if name != settings.env:
            sys.modules[name] = import_module(settings.env)
        taskset = {"id": name, **settings.options}
        roles = import_module("verifiers.v1.configs.agent").agent_config_fields
        seats = roles(vf.resolve_env_config({"taskset": taskset}))
        own = vf.default_harness_id(name) == name or any(seat.harness is not None for seat in seats.values())
        seat = {"harness": {"id": HARNESS}, "runtime": {"type": "subprocess"}}
        env = vf.load_environment(vf.resolve_env_config({"taskset": taskset} | dict.fromkeys(seats, seat)))
    except Exception as error:  # whatever an environment's own code raises
        raise WorldError(f"verifiers can't load {settings.env}: {type(error).__name__}: {error}") from error
    if len(seats) != 1:
        raise WorldError(f"{settings.env} has the seats {', '.join(seats)}: expected one, which the policy plays")
    if own:
        raise WorldError(f"{settings.env} is played by a program of its own: expected one that any conversation plays")
    if type(env.taskset).task_type().NEEDS_CONTAINER:
        raise WorldError(f"{settings.env} needs a container for each episode, which r3l does not start")
    return env


def taskset_of(settings: VerifiersSettings) -> tuple[list[dict[str, Any]], str, list[dict[str, Any]]]:
    """Read the tasks' rows (of a taskset without an end as many as are asked for), and the system prompt and tools
    that the first task's episode begins with."""
    environment = TasksetEnvironment(settings)
    try:
        taskset = environment.env.taskset
        number = settings.train_tasks + settings.heldout_tasks if taskset.INFINITE else None
        rows = [task.data.model_dump(mode="json", exclude_none=True) for task in islice(taskset, number)]
        if not rows:
            return [], "", []
        talk = environment.loop.run(environment.begun_talk(rows[0]))
        first = talk.messages[0]
        system_prompt = text_of(first) if role_of(first) == "system" else ""
        return [{"data": row, "system_prompt": system_prompt} for row in rows], system_prompt, talk.tools
    finally:
        environment.close()


@dataclass
class Talk:
    """An episode in progress: the request that waits, and the conversation that the policy has seen."""

    episode: asyncio.Task[Any]
    messages: list[Any]
    tools: list[dict[str, Any]]
    reply: asyncio.Future[dict[str, Any]]
    turn: int = 0


class TasksetEnvironment(CopiedEnvironment):
    def __init__(self, settings: VerifiersSettings) -> None:
        super().__init__(Copies(why=COPIES))
        self.settings, self.env = settings, load_taskset(settings)
        self.vf = import_package("verifiers.v1", "verifiers")
        self.loop = asyncio.Runner()
        self.agent = import_module("r3l.environments.verifiers.agent")
        self.seat = self.agent.Seat()
        self.talk: Talk | None = None
        self.ended = asyncio.Event()
        self.serving = self.loop.run(self.served())

    async def served(self) -> asyncio.Task[None]:
        """Start what episodes share. One task opens and closes it, as its servers ask for."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            listener = await self.seat.open()
            try:
                async with self.env.serving():
                    ready.set_result(None)
                    await self.ended.wait()
            finally:
                await listener.cleanup()

        serving = asyncio.create_task(serve())
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done() and (error := serving.exception()):
            raise WorldError(f"{self.settings.env} can't be served: {type(error).__name__}: {error}") from error
        return serving

    def begin(self, task: Task) -> tuple[Talk, Observation]:
        row = json.loads(task.payload)
        talk = self.loop.run(self.begun_talk(row["data"]))
        text = opening_text(talk.messages, row["system_prompt"])
        return talk, Observation(clean(text, self.settings.observation_characters))

    async def begun_talk(self, data: dict[str, Any]) -> Talk:
        """Start an episode in place of the one before, which may not have ended."""
        await self.left()
        kind, context = type(self.env.taskset).task_type(), self.vf.ModelContext
        untimed = self.vf.TaskTimeout()  # the policy's replies wait for others, and r3l has a deadline of its own
        row = kind.data_type().model_validate(data | {"timeout": untimed})
        client = self.vf.EvalClientConfig(base_url=self.seat.url, api_key_var="R3L_NO_KEY")
        played = self.env.run_episode(kind(row, self.env.config.taskset.task), context(model="policy", client=client))
        episode = asyncio.create_task(played)
        request = await self.next_request(episode)
        if request is None:
            raise WorldError(f"{self.settings.env} ended before it asked the policy: {fault(episode.result())}")
        body, reply = request
        self.talk = Talk(episode, body["messages"], body.get("tools") or [], reply)
        return self.talk

    async def next_request(self, episode: asyncio.Task[Any]) -> tuple[dict[str, Any], asyncio.Future[Any]] | None:
        """Let the episode run to its next request; None where it has ended."""
        asked: asyncio.Task[tuple[dict[str, Any], asyncio.Future[Any]]]
        asked = asyncio.create_task(self.seat.requests.get())
        await asyncio.wait({asked, episode}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            return None
        return asked.result()

    def act(self, state: Talk, action: str) -> Step:
        return self.loop.run(self.answered(state, action))

    async def answered(self, talk: Talk, action: str) -> Step:
        reply = self.agent.completion(action, talk.turn, bool(talk.tools))
        talk.reply.set_result(reply)
        talk.turn += 1
        request = await self.next_request(talk.episode)
        if request is None:
            return self.scored(talk.episode.result())
        body, talk.reply = request
        before = [*talk.messages, reply["choices"][0]["message"]]
        talk.messages = body["messages"]
        return Step(added_observation(new_messages(before, talk.messages), self.settings))

    def scored(self, episode: Any) -> Step:
        """Make the last step, with the sum of the task's rewards."""
        if not episode.ok:
            raise WorldError(f"{self.settings.env}: {fault(episode)}")
        (trace,) = episode.traces
        reward = share_of_range(trace.reward, "reward of the task", self.settings)
        text = f"The episode has ended: {trace.stop_condition or 'done'}."
        return Step(Observation(text), done=True, reward=reward, success=reward == 1.0)

    async def left(self) -> None:
        """End the episode that is played, with its servers."""
        talk, self.talk = self.talk, None
        if talk is not None and not talk.episode.done():
            talk.episode.cancel()
            with suppress(asyncio.CancelledError):
                await talk.episode

    def close(self) -> None:
        super().close()
        self.loop.run(self.left())
        self.ended.set()
        self.loop.run(asyncio.wait_for(self.serving, None))
        self.loop.close()


def fault(episode: Any) -> str:
    """Name what an episode failed by."""
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    return "; ".join(f"{error.type}: {error.message}" for error in errors) or "no reason given"

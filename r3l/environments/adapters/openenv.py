"""A client of an OpenEnv environment server: each episode is a session of the server, over a websocket.

The server keeps the state and gives no snapshots, so a rollback resets by the task's seed and takes the actions again.
Reward: the sum of an episode's rewards, as a share of the range that the settings name.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from r3l.config.environments.adapters import OpenEnvSettings
from r3l.environments.adapters.texts import (
    Gained,
    GameWorld,
    clean,
    import_package,
    require_package,
    seed_of,
    seeded_tasks,
)
from r3l.environments.base import Environment, Observation, Reply, Step
from r3l.environments.outside import flag_of
from r3l.environments.strict_json import NotJson, value
from r3l.errors import ServerAway, WorldError
from r3l.records import Task

REFUSED = "VALIDATION_ERROR"  # the server's code for an action that is none
FULL = "CAPACITY_REACHED"  # and for a session more than it takes
NO_ROOM = "; each episode is a session: start the server with a larger max_concurrent_envs"
PATIENCE = 0.8  # of the time that a worker has for a call: a slow server costs an episode, not the worker
Value = TypeVar("Value")


class OpenEnvWorld(GameWorld[OpenEnvSettings]):
    name = "openenv"
    packages = ("openenv",)
    tasks_at_once = 16  # a step waits for the server

    def parse_reply(self, text: str) -> Reply:
        """Parse the action: a text for the server's field, or a JSON object if the settings name no field."""
        reply = super().parse_reply(text)
        if not reply.valid or self.settings.action_field:
            return reply
        try:
            fits = isinstance(value(reply.action), dict)
        except NotJson:
            fits = False
        return reply if fits else Reply(False, "", "Invalid reply: expected a JSON object as the action.")

    def tasks(self, split: str) -> list[Task]:
        """List the tasks, which are seeds of the server's reset."""
        require_package("openenv", "openenv")
        return seeded_tasks(self.settings, self.name, "seeded", split)

    def data(self, split: str) -> str:
        return self.settings.url

    def make(self) -> Environment:
        return OpenEnvEnvironment(self.settings)


class OpenEnvEnvironment:
    """One episode: a session is opened by the first reset and kept for the next ones."""

    def __init__(self, settings: OpenEnvSettings) -> None:
        self.settings = settings
        self.client_class: Any = import_package("openenv.core", "openenv").GenericEnvClient
        self.broken: type[Exception] = import_package("websockets.exceptions", "openenv").WebSocketException
        self.client: Any = None
        self.gained = Gained(settings)
        self.begun = self.rewarded = False

    def reset(self, task: Task) -> Observation:
        """Start an episode. Raise `ServerAway` if nothing answers at the settings' address."""
        self.connect()
        opening = self.asked(lambda: self.client.reset(seed=seed_of(task), **self.settings.options), "reset")
        self.gained, self.begun = Gained(self.settings), True
        self.rewarded = self.took(opening.reward)
        return self.seen(opening.observation)

    def step(self, action: str) -> Step:
        if not self.begun:
            raise WorldError("openenv: step before reset")
        field = self.settings.action_field
        native_action = {field: action} if field else json.loads(action)
        try:
            result = self.asked(lambda: self.client.step(native_action), "step")
        except WorldError as error:
            if REFUSED not in str(error):
                raise
            text = clean(f"This is no action here: {error}", self.settings.observation_characters)
            return Step(Observation(text), accepted=False, standing=self.gained.share)
        done = flag_of(result.done, "done")
        self.rewarded |= self.took(result.reward)
        if done and not self.rewarded:
            raise WorldError(f"OpenEnv server {self.settings.url}: the episode ended without a reward, got None")
        share = self.gained.share
        return Step(
            self.seen(result.observation),
            done=done,
            reward=share if done else 0.0,
            success=done and share == 1.0,
            progress=share,
            standing=share,
        )

    def took(self, reward: object) -> bool:
        """Add a step's reward, and tell whether there was one: it may be None."""
        if reward is None:
            return False
        self.gained.add(reward)
        return True

    def snapshot(self) -> None:
        """Give no handle: the server has no snapshots, and a rollback takes the actions again."""
        return None

    def restore(self, handle: object) -> None:
        raise WorldError("OpenEnv has no snapshots: roll back by replaying the actions")

    def close(self) -> None:
        client, self.client, self.begun = self.client, None, False
        if client is not None:
            client.close()

    def connect(self) -> None:
        if self.client is not None:
            return
        patience = PATIENCE * self.settings.step_timeout_s
        client = self.client_class(base_url=self.settings.url, connect_timeout_s=patience, message_timeout_s=patience)
        self.client = client.sync() if hasattr(client, "sync") else client  # from 0.2.2 on it is asynchronous
        self.asked(self.client.connect, "connect")

    def asked(self, call: Callable[[], Value], what: str) -> Value:
        """Ask the server. A session that broke is closed.

        Raises:
            ServerAway: nothing answers.
            WorldError: the server answers with an error; what it says is in the message.
        """
        try:
            return call()
        except (ConnectionError, TimeoutError, self.broken) as error:
            self.close()
            kind, hint = (ServerAway, "; is it running there?") if what == "connect" else (WorldError, "")
            if what == "reset":  # it may close the session before its reason is read
                hint = NO_ROOM
            raise kind(f"OpenEnv server {self.settings.url}, {what}: {error or type(error).__name__}{hint}") from error
        except RuntimeError as error:  # what its client makes of an error that the server sends
            if REFUSED not in str(error):
                self.close()
            hint = NO_ROOM if FULL in str(error) else ""
            raise WorldError(f"OpenEnv server {self.settings.url}, {what}: {error}{hint}") from error

    def seen(self, observation: Any) -> Observation:
        field = self.settings.observation_field
        if field and (not isinstance(observation, dict) or field not in observation):
            raise WorldError(
                f"the observation of {self.settings.url} has no field {field!r}: it is "
                f"{json.dumps(observation)[:200]}; set environment.observation_field"
            )
        text = observation[field] if field else json.dumps(observation, ensure_ascii=False, sort_keys=True)
        return Observation(clean(text, self.settings.observation_characters))

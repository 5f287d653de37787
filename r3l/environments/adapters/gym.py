"""Any registered gymnasium environment whose observations are texts and whose actions are texts or numbers.

Reward: the sum of an episode's rewards, as a share of the range that the settings name. An episode that is cut off is
worth what it has reached.
"""

import json
import math
import re
from dataclasses import replace
from typing import Any

from r3l.config.environments.adapters import GymnasiumSettings
from r3l.environments.adapters.episodes import CopiedEnvironment, Copies
from r3l.environments.adapters.texts import clean, parse_action, refuse_unnamed, share_of_range
from r3l.environments.base import Environment, Observation, Reply, Step, numbered_tasks, tasks_asked
from r3l.environments.outside import flag_of, number_of
from r3l.environments.prepare.files import nothing_to_fetch
from r3l.environments.replies import prompt_text
from r3l.errors import ConfigError, WorldError
from r3l.records import Task
from r3l.system.packages import import_package

SEEDS = 2**31  # what gymnasium takes
WHOLE = re.compile(r"\s*[+-]?\d{1,18}\s*")


class GymnasiumWorld:
    name = "gymnasium"
    packages = ("gymnasium",)
    prepare = staticmethod(nothing_to_fetch)

    def __init__(self, settings: GymnasiumSettings) -> None:
        self.settings, self.copies = settings, Copies()

    def system_prompt(self) -> str:
        """Choose the system prompt that the settings give, else the one that goes with their form of replies."""
        name = "game" if self.settings.reply_format == "tags" else "game_text"
        return self.settings.system_prompt or prompt_text(name)

    def parse_reply(self, text: str) -> Reply:
        return parse_action(text, self.settings.reply_format)

    def tasks(self, split: str) -> list[Task]:
        """List the tasks, which are seeds of `reset`. Raise `ConfigError` if no environment is named, `WorldError` for
        another split."""
        if not self.settings.env:
            raise ConfigError(
                "environment.env is empty: name a registered environment (Name-v0), with its module in front where "
                "importing that registers it (my_package:Name-v0)"
            )
        refuse_unnamed(self.settings.env, "environment.env")
        number, variant = tasks_asked(self.name, split, self.settings), self.settings.env.rpartition(":")[2]
        prefix, seed = f"{self.name}/{variant}-{self.settings.tasks_seed}/{split}", self.settings.tasks_seed
        tasks = numbered_tasks(self.name, prefix, split, seed, [(variant, "")] * number)
        return [replace(task, payload=json.dumps({"seed": task.seed % SEEDS})) for task in tasks]

    def data(self, split: str) -> str:
        return self.settings.env

    def make(self) -> Environment:
        return GymnasiumEnvironment(self.settings, self.copies)


class Gained:
    """The rewards of an episode added up, as a share of the range that the settings name."""

    def __init__(self, settings: GymnasiumSettings) -> None:
        self.settings, self.total = settings, 0.0

    def add(self, reward: object) -> float:
        """Add a reward; give it as a share of the range. Raise `WorldError` where it is no finite number."""
        self.total += (paid := number_of(reward, "reward of a step", -math.inf, math.inf))
        return paid / (self.settings.highest_reward - self.settings.lowest_reward)

    @property
    def share(self) -> float:
        """Compute the sum as a share of the range. Raise `WorldError` where it is beyond it."""
        return share_of_range(self.total, "sum of the episode's rewards", self.settings)


class GymnasiumEnvironment(CopiedEnvironment):
    """One episode: its state is the environment object with the sum of its rewards."""

    def __init__(self, settings: GymnasiumSettings, copies: Copies) -> None:
        super().__init__(copies)
        self.settings = settings
        refuse_unnamed(settings.env, "environment.env")
        self.gymnasium = import_package("gymnasium", "gymnasium")

    def begin(self, task: Task) -> tuple[dict[str, Any], Observation]:
        try:
            env = self.gymnasium.make(self.settings.env, disable_env_checker=True, **self.settings.options)
        except (self.gymnasium.error.Error, ImportError, TypeError) as error:
            raise WorldError(
                f"gymnasium has no environment {self.settings.env} with these options: {type(error).__name__}: {error}"
            ) from error
        observation, _ = env.reset(seed=int(json.loads(task.payload)["seed"]))
        return {"env": env, "gained": Gained(self.settings)}, self.seen(observation)

    def act(self, state: dict[str, Any], action: str) -> Step:
        native_action, why = self.understood(state["env"].action_space, action)
        if why:
            return Step(Observation(why), accepted=False, standing=state["gained"].share)
        observation, reward, terminated, truncated, _ = state["env"].step(native_action)
        paid = state["gained"].add(reward)
        share, done = state["gained"].share, flag_of(terminated, "terminated") or flag_of(truncated, "truncated")
        return Step(
            self.seen(observation),
            done=done,
            reward=share if done else 0.0,
            success=done and share == 1.0,
            progress=share,
            standing=share,
            turn_reward=paid,
        )

    def understood(self, space: Any, action: str) -> tuple[Any, str]:
        """Convert the action to the form of its space, or say why it is invalid. Raise `WorldError` for a space of
        other things."""
        spaces = self.gymnasium.spaces
        if isinstance(space, spaces.Text):
            return action, "" if space.contains(
                action
            ) else f"{action:.80} is no action here: expected a text of {space}."
        if not isinstance(space, spaces.Discrete):
            raise WorldError(f"{self.settings.env} has actions of {space}: expected Text or Discrete; wrap it")
        low, high = int(space.start), int(space.start + space.n - 1)
        number = int(action) if WHOLE.fullmatch(action) else None
        if number is None or not low <= number <= high:
            return None, f"{action:.80} is no action here: expected a number from {low} to {high}."
        return number, ""

    def seen(self, observation: object) -> Observation:
        if not isinstance(observation, str):
            raise WorldError(
                f"{self.settings.env} observes {type(observation).__name__}: expected text; wrap it with "
                "gymnasium.wrappers.TransformObservation"
            )
        return Observation(clean(observation, self.settings.observation_characters))

    def close(self) -> None:
        if self.played is not None:
            self.played.state["env"].close()
        super().close()

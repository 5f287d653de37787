"""What environments of others say, made fit to be stored and shown, and their packages, imported with a word on how to
get them."""

import json
import math
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from r3l.config.environments.adapters import AdaptedSettings, GameSettings, RangedSettings
from r3l.environments.base import Reply
from r3l.environments.outside import number_of, share_of, text_of
from r3l.environments.prepare.files import nothing_to_fetch
from r3l.environments.replies import after_thought, parse_tagged_reply
from r3l.errors import WorldError
from r3l.records import Task
from r3l.system.seeds import derive
from r3l.system.visible import visible

PROMPTS = Path(__file__).parents[1] / "prompts"
SEEDS = 2**31  # what every package takes
Settings = TypeVar("Settings", bound=GameSettings)
EMPTY = "Invalid reply: it is empty. Expected an action."


def clean(text: object, limit: int) -> str:
    """Make a text of an environment fit to be shown: controls and direction marks are made visible, and what is beyond
    `limit` characters is left out of its middle. Raise `WorldError` where it is no text."""
    whole = visible(text_of(text, "observation").replace("\r\n", "\n")).strip()
    if len(whole) <= limit:
        return whole
    half = limit // 2
    return f"{whole[:half]}\n[{len(whole) - 2 * half} characters left out]\n{whole[-half:]}"


def game_prompt(settings: GameSettings) -> str:
    """Choose the system prompt that the settings give, else the one that goes with their form of replies."""
    name = "game" if settings.reply_format == "tags" else "game_text"
    return settings.system_prompt or (PROMPTS / f"{name}.txt").read_text().rstrip("\n")


def parse_action(text: str, form: str) -> Reply:
    """Parse a reply. `form` tags: <think>...</think> <action>...</action>; text: all that follows a thought is the
    action."""
    if form == "tags":
        return parse_tagged_reply(text)
    action = after_thought(text).strip()
    return Reply(True, action) if action else Reply(False, "", EMPTY)


class GameWorld(Generic[Settings]):
    """What worlds of games share: the prompt and the form of replies that their settings give."""

    prepare = staticmethod(nothing_to_fetch)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def system_prompt(self) -> str:
        return game_prompt(self.settings)

    def parse_reply(self, text: str) -> Reply:
        return parse_action(text, self.settings.reply_format)


def seeded_tasks(settings: AdaptedSettings, name: str, variant: str, split: str) -> list[Task]:
    """Make tasks that differ by their seed alone, which is their payload. Raise `WorldError` for another split."""
    number = {"train": settings.train_tasks, "heldout": settings.heldout_tasks}.get(split)
    if number is None:
        raise WorldError(f"{name} split {split!r}: expected one of train, heldout")
    prefix = f"{name}/{variant}-{settings.tasks_seed}/{split}"
    seeds = [derive(settings.tasks_seed, prefix, index) for index in range(number)]
    return [
        Task(
            iteration=0,
            task=0,
            task_id=f"{prefix}/{index:05d}",
            environment=name,
            split=split,
            task_type=variant,
            payload=json.dumps({"seed": seed % SEEDS}),
            seed=seed,
        )
        for index, seed in enumerate(seeds)
    ]


def seed_of(task: Task) -> int:
    """Read the seed in a task's payload. Raise `WorldError` where there is none."""
    try:
        return int(json.loads(task.payload)["seed"])
    except (KeyError, TypeError, ValueError) as error:
        raise WorldError(
            f"{task.task_id}: no seed in the payload {task.payload:.100}; take tasks from `tasks`"
        ) from error


def require_package(module: str, extra: str) -> None:
    """Raise `WorldError` with the command where a package is not there; nothing is imported."""
    if find_spec(module) is None:
        raise WorldError(f"{module} is not installed: pip install 'r3l[{extra}]'")


def import_package(module: str, extra: str) -> ModuleType:
    """Import a package that an extra installs. Raise `WorldError` with the command where it is not there."""
    try:
        return import_module(module)
    except ImportError as error:
        raise WorldError(f"{module} can't be imported ({error}): pip install 'r3l[{extra}]'") from error


class Gained:
    """The rewards of an episode added up, as a share of the range that the settings name."""

    def __init__(self, settings: RangedSettings) -> None:
        self.settings, self.total = settings, 0.0

    def add(self, reward: object) -> None:
        """Add a reward. Raise `WorldError` where it is no finite number."""
        self.total += number_of(reward, "reward of a step", -math.inf, math.inf)

    @property
    def share(self) -> float:
        """Compute the sum as a share of the range. Raise `WorldError` where it is beyond it."""
        return share_of_range(self.total, "sum of the episode's rewards", self.settings)


def share_of_range(reward: object, what: str, settings: RangedSettings) -> float:
    """Convert a reward to a share of the range that the settings name. Raise `WorldError` where it is beyond it."""
    bounds = "environment.lowest_reward to environment.highest_reward"
    return share_of(reward, f"{what}, of {bounds}", settings.lowest_reward, settings.highest_reward)

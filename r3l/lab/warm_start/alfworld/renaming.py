"""Demonstrations with their objects renamed: the same episode about a ladle instead of a mug.

Games draw their objects from real rooms, where some kinds are rare. A model that has seen every kind in every role
learns to copy names from what it reads, instead of knowing which ones are likely.
"""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from r3l.environments.alfworld.rooms import affordances, floor_plans, load_room
from r3l.lab.warm_start.alfworld.demonstrations import Demonstration, DemoTurn


@cache
def object_kinds() -> tuple[str, ...]:
    """List what can be carried in some kitchen, in the game's words."""
    kinds = {kind for number in floor_plans(kitchens_only=True) for kind in load_room(number).object_types}
    return tuple(sorted(kind.lower() for kind in kinds & affordances().portable))


@cache
def object_word() -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(object_kinds())})\b")


def rename_objects(demonstration: Demonstration, rng: random.Random) -> Demonstration:
    """Turn every kind of object into another one, the same one everywhere in the episode, its reflection and its
    retry."""
    mapping = dict(zip(object_kinds(), rng.sample(object_kinds(), len(object_kinds())), strict=True))

    def words(text: str) -> str:
        return object_word().sub(lambda match: mapping[match[1]], text)

    report = {key: words(value) if isinstance(value, str) else value for key, value in demonstration.report.items()}
    return Demonstration(
        replace(demonstration.errand, target=words(demonstration.errand.target)),
        renamed_turns(demonstration.turns, words),
        words(demonstration.final),
        demonstration.won,
        report,
        renamed_turns(demonstration.retry, words),
        demonstration.retry_won,
    )


def renamed_turns(turns: list[DemoTurn], words: Callable[[str], str]) -> list[DemoTurn]:
    return [DemoTurn(words(turn.observation), words(turn.reply), words(turn.action), turn.stray) for turn in turns]

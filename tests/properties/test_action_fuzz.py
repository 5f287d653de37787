"""Whatever a model writes is a turn: no reply makes the parser of a built-in world raise, and no action that it gives
makes a world of Python functions raise."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from r3l.config.environments import HouseholdSettings, MathSettings
from r3l.config.environments.adapters import GymnasiumSettings, ToolsSettings, VerifiersSettings
from r3l.environments.adapters.gym import GymnasiumEnvironment, GymnasiumWorld
from r3l.environments.household.world import HouseholdWorld
from r3l.environments.kinds import ENVIRONMENTS
from r3l.environments.math.world import MathWorld
from r3l.environments.outside import step_of
from r3l.environments.tools.world import ToolWorld
from r3l.environments.verifiers.world import VerifiersWorld
from r3l.environments.webshop.session import parse_action
from r3l.environments.workers.sessions import Sessions
from tests.support.reply_mutator import MUTATIONS, ODD_PIECES, ODD_VALUES

TOOLS = ToolsSettings(train_tasks=1, heldout_tasks=1)
DRAWER = [{"function": {"name": "open_drawer"}}]
# World by the form of replies that it parses; those that are left out parse as household does.
WORLDS = {
    "household": HouseholdWorld(HouseholdSettings(level="short", train_tasks=1)),
    "math": MathWorld(MathSettings()),
    "math boxed": MathWorld(MathSettings(answer_format="boxed")),
    "tools": ToolWorld(TOOLS),
    "gymnasium": GymnasiumWorld(GymnasiumSettings(reply_format="text")),
    "verifiers": VerifiersWorld(VerifiersSettings()),
}
NAMES = [tool["function"]["name"] for tool in WORLDS["tools"].schemas]
WORDS = (
    "look", "--3", "+-3", "3", "take mug 1 from desk 1", "search[a]", "click[", "\\boxed{4}", "\\boxed{}", "x" * 300,
)  # fmt: skip
PIECES = (
    "<think>", "</think>", "<action>", "</action>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "\\boxed{",
    "```json\n", "\n```", *ODD_PIECES,
)  # fmt: skip


def call(chance: random.Random) -> str:
    """A call whose name and arguments are proper mostly, and of any kind now and then."""
    odd = chance.random() < 0.5
    name = chance.choice(ODD_VALUES) if odd and chance.random() < 0.4 else json.dumps(chance.choice(NAMES))
    values = (*ODD_VALUES, '"cable"', "1", '["a"]', '{"self": 1}')
    keys = ("item", "shelf", "amount", "self", "name", "", "number", "\\ud800")
    pairs = ", ".join(f'"{chance.choice(keys)}": {chance.choice(values)}' for _ in range(chance.randrange(4)))
    arguments = chance.choice(values) if odd and chance.random() < 0.4 else f"{{{pairs}}}"
    text = f'{{"name": {name}, "{chance.choice(("arguments", "parameters"))}": {arguments}}}'
    return f"[{text}, {text}]" if chance.random() < 0.1 else text


def action_replies(count: int, seed: int) -> Iterator[str]:
    """`count` replies in every form that a world asks for, each with up to three mutations."""
    chance = random.Random(seed)
    for _ in range(count):
        said = chance.choice((call(chance), chance.choice(WORDS)))
        tag = chance.choice(("action", "answer", "tool_call", ""))
        reply = f"<think>{chance.choice(WORDS)}</think>" + (f"<{tag}>{said}</{tag}>" if tag else said)
        for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
            place = chance.randrange(len(reply) + 1)
            odd = reply[:place] + chance.choice(PIECES) + reply[place:]
            reply = chance.choice((odd, chance.choice(MUTATIONS)(chance, reply)))
        yield reply


def space() -> tuple[GymnasiumEnvironment, SimpleNamespace]:
    environment = object.__new__(GymnasiumEnvironment)
    spaces = SimpleNamespace(Text=str, Discrete=SimpleNamespace)
    environment.gymnasium = SimpleNamespace(spaces=spaces)
    return environment, SimpleNamespace(start=0, n=5)


@pytest.mark.parametrize(
    ("count", "seed"), [(500, 0), pytest.param(100_000, 1, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)])]
)
def test_every_reply_is_a_turn_of_every_world(count, seed):
    valid = Counter()
    said = {"system_prompt": "", "tools": DRAWER, "rows": {}}
    gym, discrete = space()
    played = {name: Sessions(WORLDS[name]) for name in ("household", "tools")}
    [task] = WORLDS["household"].tasks("train")
    errand = WORLDS["tools"].tasks("train")[0]
    with patch.object(VerifiersWorld, "said", said):
        for text in action_replies(count, seed):
            for name, world in WORLDS.items():
                reply = world.parse_reply(text)
                assert reply.valid == bool(reply.action) == (not reply.error), (name, text)
                valid[name] += reply.valid
                if reply.valid and name in played:  # and a world of ours takes any action that its parser gives
                    played[name].start("s", errand if name == "tools" else task)
                    assert step_of(played[name].step("s", reply.action))
                if reply.valid:
                    gym.understood(discrete, reply.action)
                    parse_action(reply.action)
    assert set(WORLDS) <= set(valid)
    assert all(0.02 < valid[name] / count < 0.98 for name in WORLDS if name not in {"gymnasium"}), valid
    print(f"{count} replies, valid: {dict(valid)}")


def test_every_kind_of_world_parses_in_one_of_these_forms():
    kinds = {name.partition(" ")[0] for name in WORLDS}
    alike = {"alfworld", "scienceworld", "webshop"}  # `parse_tagged_reply`, as household
    assert set(ENVIRONMENTS) == kinds | alike

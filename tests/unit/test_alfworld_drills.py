"""Drills: what is thought of a listing is what the listing says."""

import random
import re

import pytest

from r3l.engines.chat_format import ChatFormat
from r3l.environments.alfworld.world import AlfworldWorld
from r3l.lab.warm_start.alfworld.drills import TURNS, drill, list_in_words
from r3l.lab.warm_start.rows import DECIDED, READ, RowEncoder


@pytest.mark.parametrize("seed", range(20))
def test_every_thought_copies_its_listing_up_to_the_target(seed):
    turns = drill(random.Random(seed))
    assert len(turns) == 1 + TURNS
    for turn in turns[1:]:
        listed = re.findall(r"an? ([a-z]+ \d)", turn.observation.split("you see ")[1])
        target = re.match(r"<think>(?:put|heat|cool|clean) ([a-z]+) to", turn.reply)[1]
        kinds = [name.split()[0] for name in listed]
        shown = listed[: kinds.index(target) + 1] if target in kinds else listed
        assert f": see {', '.join(shown)}. " in turn.reply
        assert turn.stray == (target not in kinds)
        if target in kinds:
            assert f"yes, {shown[-1]}.</think><action>take {shown[-1]} from " in turn.reply
        assert AlfworldWorld.parse_reply(None, turn.reply).action == turn.action


def test_names_are_listed_as_the_game_lists_them():
    assert list_in_words(["mug 1"]) == "a mug 1"
    assert list_in_words(["mug 1", "pan 2", "egg 1"]) == "a mug 1, a pan 2, and a egg 1"


def test_arbitrary_actions_are_not_trained_on():
    chat = ChatFormat.load("data/policies/embedded")
    turns = drill(random.Random(3))
    row = RowEncoder(chat, "s").drill(turns)
    trained = chat.tokenizer.decode(
        [token for token, weight in zip(row.ids, row.weights, strict=True) if weight >= 1.0]
    )
    expected = "".join(turn.reply.split("<action>")[0] if turn.stray else turn.reply + "<|end|>" for turn in turns[1:])
    assert trained == expected
    assert set(row.weights) == {0.0, READ, 1.0, DECIDED}

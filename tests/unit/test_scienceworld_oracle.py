"""Oracle pivots from the score after each turn."""

import json
import shutil

import pytest

from r3l.config.environments import ScienceWorldSettings
from r3l.environments.base import Observation, Step
from r3l.environments.scienceworld.world import ScienceWorldWorld, Verdict, verdict_of
from r3l.records import Task

GOING_ON, WON, LOST = (
    Step(Observation("")),
    Step(Observation(""), done=True, reward=1.0, success=True),
    Step(Observation(""), done=True),
)


@pytest.mark.parametrize(("progress", "last", "verdict"), [
    ([0.0, 0.5, 1.0], WON, Verdict(None, "won")),
    ([0.2, 0.2, 0.0], LOST, Verdict(2, "lost")),  # the turn that ended it is the one to take again
    ([0.0, 0.1, 0.1, 0.4, 0.4, 0.4], GOING_ON, Verdict(4, "stalled")),  # the turns up to the last gain are kept
    ([0.0, 0.1, None, None], None, Verdict(2, "stalled")),
    ([0.0, 0.0], GOING_ON, Verdict(0, "stalled")),
    ([0.0, 0.3], GOING_ON, Verdict(1, "stalled")),  # a pivot is one of the episode's turns
    ([], None, Verdict(0, "stalled")),
])  # fmt: skip
def test_verdicts_agree_with_those_by_hand(progress, last, verdict):
    given = verdict_of(progress, last)
    assert (given.pivot, given.why) == (verdict.pivot, verdict.why)
    assert bool(given.cause) == bool(given.advice) == (verdict.why != "won"), "in words, for a guide"


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java: apt-get install default-jre-headless")
def test_verdicts_on_the_simulator_are_right():
    """Focusing on the cupboard in search of a plant loses at once. Water for boiling is in focus after turn 7, then
    nothing is done."""
    pytest.importorskip("scienceworld", reason="the extra [scienceworld] is not installed")
    world = ScienceWorldWorld(ScienceWorldSettings())
    task = Task(0, 0, "t", "scienceworld", "train", "find-plant", json.dumps({"type": "find-plant", "variation": 0}), 0)
    lost = world.oracle_pivot(task, ["go to kitchen", "", "focus on cupboard", "look around"], [])
    assert (lost.pivot, lost.why) == (2, "lost")
    boil = Task(0, 0, "t", "scienceworld", "train", "boil", json.dumps({"type": "boil", "variation": 0}), 0)
    filling = [
        "go to kitchen", "open cupboard", "pick up metal pot", "move metal pot to sink", "activate sink",
        "deactivate sink", "pick up metal pot", "focus on substance in metal pot",
    ]  # fmt: skip
    stalled = world.oracle_pivot(boil, [*filling, "look around", "wait1", "look around"], [])
    assert (stalled.pivot, stalled.why) == (8, "stalled")

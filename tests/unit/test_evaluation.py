"""Scores against figures from the literature and by hand; evaluation episodes in the corridor."""

import math

import pytest

from r3l.errors import EngineError
from r3l.evaluation.play import evaluation_rows, evaluation_stage
from r3l.evaluation.score import by_type, score, wilson
from tests.fakes import explorer, task


@pytest.mark.parametrize(("solved", "episodes", "low", "high"), [
    (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0, 0.1611),
    (1, 29, 0.0061, 0.1718),
])
def test_wilson_intervals_of_newcombe(solved, episodes, low, high):
    assert wilson(solved, episodes) == pytest.approx((low, high), abs=5e-5)


def test_a_score_by_hand():
    found = score([(True, 1.0), (False, 0.0), (False, 0.5), (True, 1.0)])
    assert (found.episodes, found.solved, found.rate, found.reward) == (4, 2, 0.5, 0.625)
    # deviations .375 -.625 -.125 .375: squares sum to .6875; / 3 / 4, root
    assert found.standard_error == pytest.approx(math.sqrt(0.6875 / 3 / 4))
    assert str(found).startswith("2/4 = 50.0% [")


def test_by_task_type():
    found = by_type([("heat", True, 1.0), ("cool", False, 0.0), ("heat", False, 0.0)])
    assert {name: (one.solved, one.episodes) for name, one in found.items()} == {"cool": (0, 1), "heat": (1, 2)}


def test_episodes_and_their_rows():
    def script(name, prompt):
        if "task=1" in name:
            raise EngineError("gone")
        return "!right"

    world = explorer(script)
    episodes = evaluation_stage(world, [task(3, 0), task(3, 1)], repeats=2, temperature=0.4)
    rows = evaluation_rows(episodes, benchmark="corridor/test", answer_format="", protocol="single", temperature=0.4)
    assert [(row["trajectory_id"], row["status"], row["reward"], row["repeat"]) for row in rows] == [
        ("iteration=3/task=0/evaluation=0", "completed", 1.0, 0), ("iteration=3/task=0/evaluation=1", "completed", 1.0, 1),
        ("iteration=3/task=1/evaluation=0", "engine_error", 0.0, 0), ("iteration=3/task=1/evaluation=1", "engine_error", 0.0, 1)]
    assert {sampling.temperature for _, _, sampling in world.engine.requests} == {0.4}

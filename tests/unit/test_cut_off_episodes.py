"""An episode that a limit cuts off is worth what it stands at, where its world says so; one that breaks is worth nothing."""

import asyncio
from dataclasses import replace

import pytest

from r3l.environments.base import Step
from r3l.errors import EngineError, WorldError
from r3l.exploration.sample import sample
from tests.fakes import CorridorPool, explorer, failed, task


class ScoredCorridor(CorridorPool):
    """Every step to the right is worth a tenth so far."""

    def step(self, session: str, action: str):
        answer = super().step(session, action)
        step: Step = answer.result()
        answer = type(answer)()
        answer.set_result(replace(step, standing=self.sessions[session][0] / 10))
        return answer


class BreakingCorridor(ScoredCorridor):
    def step(self, session: str, action: str):
        return failed(WorldError("it broke")) if action == "break" else super().step(session, action)


def play(replies, pool, max_turns=3):
    script = iter(replies)
    return asyncio.run(sample(explorer(lambda request, prompt: next(script), pool, max_turns=max_turns), task(), 0)).trajectory


@pytest.mark.parametrize(("replies", "reward"), [
    (["!right", "!right", "!right"], 0.3),
    (["!right", "!left", "!right"], 0.2),
    (["!right", "!right", "malformed"], 0.2),  # a bad reply costs its turn, not what was reached
    (["bad", "bad", "bad"], 0.0),
])
def test_the_turn_limit_keeps_the_standing(replies, reward):
    ended = play(replies, ScoredCorridor())
    assert (ended.status, ended.success) == ("turn_limit", False)
    assert ended.reward == pytest.approx(reward)


def test_a_world_without_a_standing_gives_nothing():
    assert play(["!right", "!right", "!right"], CorridorPool()).reward == 0.0


def test_the_end_counts_where_there_is_one():
    ended = play(["!right"] * 5, ScoredCorridor(), max_turns=8)
    assert (ended.status, ended.reward, ended.success) == ("completed", 1.0, True)


def test_a_broken_episode_is_worth_nothing():
    ended = play(["!right", "!break"], BreakingCorridor())
    assert (ended.status, ended.reward) == ("environment_error", 0.0)

    def fails_later(request: str, prompt: str) -> str:
        if request.endswith("turn=1"):
            raise EngineError("no answer")
        return "!right"
    broken = asyncio.run(sample(explorer(fails_later, ScoredCorridor()), task(), 0)).trajectory
    assert (broken.status, broken.reward) == ("engine_error", 0.0)

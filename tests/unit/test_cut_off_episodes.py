"""An episode that a limit cuts off is worth what it stands at, where its world says so; one that breaks is worth
nothing."""

import asyncio
from dataclasses import replace

import pytest

from r3l.environments.base import Observation, Step
from r3l.environments.workers.sessions import Sessions
from r3l.errors import EngineError, WorldError
from r3l.exploration.retry import retry
from r3l.exploration.sample import sample
from r3l.records import Reflection, SamplingPlan
from tests.support.fakes import CorridorPool, explorer, failed
from tests.support.records import corridor_task as task


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
    return asyncio.run(
        sample(explorer(lambda request, prompt: next(script), pool, max_turns=max_turns), task(), 0)
    ).trajectory


@pytest.mark.parametrize(("replies", "reward"), [
    (["!right", "!right", "!right"], 0.3),
    (["!right", "!left", "!right"], 0.2),
    (["!right", "!right", "malformed"], 0.2),  # a bad reply costs its turn, not what was reached
    (["bad", "bad", "bad"], 0.0),
])  # fmt: skip
def test_the_turn_limit_keeps_the_standing(replies, reward):
    ended = play(replies, ScoredCorridor())
    assert (ended.status, ended.success) == ("turn_limit", False)
    assert ended.reward == pytest.approx(reward)


def test_a_retry_starts_with_what_its_kept_turns_stand_at():
    """Two turns are kept, worth 0.2, and the retry's own are all malformed; then one more step to the right: 0.3."""

    class Pool(ScoredCorridor):
        def rollback(self, session, task, actions, observations):
            answer = type(super().rollback(session, task, actions, observations))()
            answer.set_result(replace(super().rollback(session, task, actions, observations).result(), standing=0.2))
            return answer

    for replies, reward in ((["bad", "bad", "bad"], 0.2), (["bad", "!right", "bad"], 0.3)):
        own = iter(replies)

        def script(request: str, prompt: str, own=own) -> str:
            return next(own) if "retry=" in request else "!right"

        exploring = explorer(script, Pool(length=9), max_turns=5)
        base = asyncio.run(sample(exploring, task(), 0))
        reflection = Reflection(
            "r", base.trajectory.trajectory_id, base.trajectory.trajectory_id, 0, 0, "g", 0, "parsed", "", "text", "{}",
            "failure", 2, 2, "retry", [], [], [], "stop", "policy-0", 0, 0.0,
        )  # fmt: skip
        again = asyncio.run(retry(exploring, task(), SamplingPlan(1), base, base, reflection))
        assert (again.trajectory.status, again.trajectory.pivot_turn) == ("turn_limit", 2)
        assert again.trajectory.reward == pytest.approx(reward)


def test_a_rollback_in_a_worker_says_what_it_stands_at():
    """Taken again, and from a snapshot."""

    class Tenths:
        def reset(self, task):
            self.place = 0
            return Observation("at 0")

        def step(self, action):
            self.place += 1
            return Step(Observation(f"at {self.place}"), standing=self.place / 10)

        def snapshot(self):
            return self.place if self.snapshots else None

        def restore(self, handle):
            self.place = handle

        def close(self):
            pass

    class World:
        def __init__(self, snapshots):
            Tenths.snapshots = snapshots

        def make(self):
            return Tenths()

    for snapshots in (True, False):
        sessions = Sessions(World(snapshots))  # type: ignore[arg-type]
        sessions.start("base", task())
        for action in "abc":
            sessions.step("base", action)
        assert sessions.rollback("r", task(), ["a", "", "b"], ["at 0", "at 1", "error", "at 2"]).standing == 0.2
        assert sessions.rollback("s", task(), [], ["at 0"]).standing == 0.0
        assert sessions.counts["restores" if snapshots else "replays"] == 1


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

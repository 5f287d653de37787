"""What tools returned keeps its role through an episode, a rollback and a guided retry."""

from concurrent.futures import Future
from dataclasses import replace

import pytest

from r3l.environments.base import Observation, Rollback, Step
from r3l.environments.workers.sessions import Sessions
from r3l.exploration import stages
from r3l.records import SamplingPlan, Task
from tests.support.fakes import CorridorPool, CorridorWorld, done, explorer
from tests.support.records import corridor_task as task
from tests.support.records import report
from tests.unit.test_exploration import text, trapper


def as_tool(step: Step) -> Step:
    return replace(step, observation=replace(step.observation, role="tool"))


class ToolPool(CorridorPool):
    """The corridor, whose answers are what a tool returned."""

    def step(self, session: str, action: str) -> Future[Step]:
        return done(as_tool(super().step(session, action).result()))

    def rollback(self, session: str, task: Task, actions: list[str], observations: list[str]) -> Future[Rollback]:
        found = super().rollback(session, task, actions, observations).result()
        return done(replace(found, role="tool" if actions else "user"))


@pytest.mark.parametrize(("pivot", "position", "begins"), [
    (0, "mid_system", "<s>Walk.\n\nYour previous attempt"),
    (2, "mid_system", "<t>at 2<s>Your previous attempt"),
    (2, "user", "<t>at 2<u>Your previous attempt"),
])  # fmt: skip
def test_the_result_of_a_call_stands_behind_it_and_the_guidance_behind_the_result(pivot, position, begins):
    plan = SamplingPlan(
        bases=1, reflection="report", retries_per_base=1, retry_when="not_success", guidance_position=position
    )
    world = explorer(trapper(report(pivot)), ToolPool())
    bases = stages.base_stage(world, [task()], plan)
    reflections = stages.reflections_stage(world, [task()], plan, bases, bases, 0)
    (retry,) = stages.retries_stage(world, [task()], plan, bases, bases, reflections)
    assert text(bases[0].turns).startswith("<s>Walk.<u>at 0<a>!right|<t>at 1<a>!right|<t>at 2<a>!trap|")
    assert text(retry.turns).startswith(begins)


class ToolWorld(CorridorWorld):
    def make(self):
        return Hall()


class Hall:
    """Two rooms; with `keeps` a snapshot is the room."""

    keeps = True

    def reset(self, task: Task) -> Observation:
        self.room = 0
        return Observation("room 0")

    def step(self, action: str) -> Step:
        self.room += 1
        return Step(Observation(f"room {self.room}", role="tool"))

    def snapshot(self) -> int | None:
        return self.room if self.keeps else None

    def restore(self, handle: object) -> None:
        self.room = int(str(handle))

    def close(self) -> None: ...


@pytest.mark.parametrize("keeps", [True, False])
def test_a_rollback_says_whose_message_the_last_observation_was(keeps, monkeypatch):
    monkeypatch.setattr(Hall, "keeps", keeps)
    sessions = Sessions(ToolWorld())
    seen = [sessions.start("a", task()).text, *(sessions.step("a", "on").observation.text for _ in range(2))]
    for again in range(2):  # by the base's states, then by the rollback's own
        assert sessions.rollback(f"{again}", task(), ["on", "on"], seen).role == "tool"
        assert sessions.rollback(f"{again}", task(), [], seen[:1]).role == "user"
        malformed = [*seen[:2], "no call"]
        assert sessions.rollback(f"{again}", task(), ["on", ""], malformed).role == "user"

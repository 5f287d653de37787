"""What an environment pays for single turns: from its step to the tables, and into the methods that use it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from r3l.config.compose import compose
from r3l.config.environments.adapters import GymnasiumSettings, ToolsSettings
from r3l.config.methods.rivals import GiGPOSettings, GRPOSettings, ProcessSupervisionSettings
from r3l.config.section import settings_of
from r3l.environments.adapters.gym import Gained, GymnasiumEnvironment
from r3l.environments.base import Observation, Step
from r3l.environments.outside import step_of
from r3l.environments.tools.world import ToolEnvironment
from r3l.errors import WorldError
from r3l.exploration import stages
from r3l.records import SamplingPlan
from r3l.store.catalog import connect
from r3l.store.digests import fingerprint, table_digest
from r3l.store.stage import Store
from r3l.store.tables.parts import to_table
from tests.support import records
from tests.support.fakes import CorridorPool, done, explorer
from tests.support.store_iteration import commit_stage
from tests.unit.test_adapter_rewards import DISCRETE, made
from tests.unit.test_turn_advantages import WALKS, credited, walked


class PayingPool(CorridorPool):
    """A corridor that pays each step to the right a tenth, and takes two for the trap."""

    def step(self, session, action):
        step = super().step(session, action).result()
        return done(replace(step, turn_reward={"right": 0.1, "trap": -0.2}.get(action)))


def test_what_turns_are_paid_is_stored_beside_the_reward_of_the_end(tmp_path):
    replies = ["!right", "mumbled", "!trap", "!right", "!right", "!right"]
    world = explorer(lambda request, _: replies[int(request.rsplit("=", 1)[1])], PayingPool(), max_turns=6)
    [episode] = stages.base_stage(world, [records.corridor_task()], SamplingPlan(bases=1))
    assert [turn.reward for turn in episode.turns] == [0.1, None, -0.2, 0.1, 0.1, 0.1]
    assert episode.trajectory.reward == 0  # of the world's last word: the sum is 0.2
    store = Store.open(str(tmp_path))
    commit_stage(store, "base", {"trajectories": [episode.trajectory], "turns": episode.turns}, [], "demo", 0)
    with connect(store) as connection:
        rows = connection.execute("SELECT turn, round(reward::DOUBLE, 2) FROM turns ORDER BY turn").fetchall()
    assert rows == [(0, 0.1), (1, None), (2, -0.2), (3, 0.1), (4, 0.1), (5, 0.1)]


def test_a_world_that_pays_no_turn_keeps_its_identity_and_its_digests():
    """As they were before there was such a column."""
    assert fingerprint("base", {"a": 1}, ["p"], "x").startswith("36b562f16aff3ea4")
    unpaid = [records.turn("a")]
    assert table_digest(to_table("turns", unpaid)).startswith("8225389085194969")
    assert table_digest(to_table("turns", [])).startswith("53dd538fbe1bf0dd")
    assert table_digest(to_table("trajectories", [])).startswith("7d974ad18c360be9")
    digests = {table_digest(to_table("turns", [records.turn("a", reward=value)])) for value in (None, 0.0, 0.5)}
    assert len(digests) == 3


@pytest.mark.parametrize("value", [1e39, float("nan"), "0.5"])
def test_what_is_no_finite_number_is_refused(value):
    assert step_of(Step(Observation(""), turn_reward=-3)).turn_reward == -3
    with pytest.raises(WorldError, match="turn_reward: expected a finite number"):
        step_of(Step(Observation(""), turn_reward=value))


def test_gymnasium_pays_shares_of_the_range_which_add_up_to_the_reward():
    settings = GymnasiumSettings(env="x", highest_reward=4.0)
    rewards = iter([1.0, -0.5, 2.5])
    env = SimpleNamespace(step=lambda action: ("o", next(rewards), False, False, {}), action_space=DISCRETE)
    spaces = SimpleNamespace(Text=str, Discrete=SimpleNamespace)
    played = made(GymnasiumEnvironment, settings, gymnasium=SimpleNamespace(spaces=spaces))
    state = {"env": env, "gained": Gained(settings)}
    steps = [played.act(state, "3") for _ in range(3)]
    assert [step.turn_reward for step in steps] == [0.25, -0.125, 0.625]
    assert steps[-1].standing == sum(step.turn_reward for step in steps)
    assert played.act(state, "wrong").turn_reward is None


def test_a_toolset_is_asked_and_one_that_pays_no_turn_is_not():
    played = made(ToolEnvironment, ToolsSettings())
    asked = SimpleNamespace(score=lambda answer: 1.0, tools=list, paid=lambda: 0.3)
    assert played.act(asked, '{"answer": "a"}').turn_reward == 0.3
    assert played.act(asked, '{"calls": []}').turn_reward == 0.3
    del asked.paid
    assert played.act(asked, '{"answer": "a"}').turn_reward is None


def with_pay(episodes, pays):
    return [
        replace(one, turns=[replace(turn, reward=value) for turn, value in zip(one.turns, its, strict=True)])
        for one, its in zip(episodes, pays, strict=True)
    ]


def test_process_supervision_and_gigpo_use_what_turns_are_paid():
    pair = [walked(0, 1.0, "ab"), walked(1, 0.0, "ac")]
    paid_turns = with_pay(pair, [[0.5, None], [0.0, 0.25]])
    # all turns: 0.5, 0, 0, 0.25, mean 0.1875; sums from each turn on
    rows = credited(ProcessSupervisionSettings(scale="none"), paid_turns)
    assert [one.turn_advantages for one in rows] == [[0.125, -0.1875], [-0.125, 0.0625]]
    # both begin in a: returns 0.5 and 0.95 * 0.25, mean 0.36875; b and c are alone
    rows = credited(GiGPOSettings(scale="none", discount=0.95), paid_turns)
    assert [one.turn_advantages for one in rows] == [
        pytest.approx([0.5 + 0.13125, 0.5]),
        pytest.approx([-0.5 - 0.13125, -0.5]),
    ]


@pytest.mark.parametrize("settings", [GRPOSettings, GiGPOSettings])
def test_the_gate_gives_no_advantage_where_no_attempt_solved_its_task(settings):
    shaped = [walked(n, reward / 2, seen) for n, (seen, reward) in enumerate(WALKS)]
    assert not any(one.trajectory.success for one in shaped)
    assert any(one.advantage for one in credited(settings(), shaped))
    rows = credited(settings(outcome_gate=True), shaped)
    assert {(one.advantage, one.rule) for one in rows} == {(0.0, "degenerate")}
    assert not any(value for one in rows for value in one.turn_advantages or ())
    solved = [replace(shaped[0], trajectory=replace(shaped[0].trajectory, success=True)), *shaped[1:]]
    assert credited(settings(outcome_gate=True), solved) == credited(settings(), solved)


def test_the_gate_belongs_to_the_identity_only_where_it_is_set():
    asked, gated = (compose(method="grpo", assignments=more) for more in ([], ["method.outcome_gate=true"]))
    assert "outcome_gate" not in settings_of(asked, "credit")["method"]
    assert settings_of(gated, "credit")["method"]["outcome_gate"] is True
    assert "outcome_gate" not in settings_of(gated, "base").get("method", {})

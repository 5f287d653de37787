"""What turns are worth: VinePPO's continuations and the environment's sub-goals, with numbers worked out by hand."""

from dataclasses import replace

import pytest

from r3l.audit.attempts import find, group
from r3l.audit.lines import Line
from r3l.audit.reader import Reader
from r3l.config import compose
from r3l.config.methods.rivals import GRPOSettings, ProcessSupervisionSettings, VinePPOSettings
from r3l.credit.turns import value_differences
from r3l.environments.household.world import HouseholdEnvironment, HouseholdWorld
from r3l.exploration import stages
from r3l.exploration.continuations import continued_turns
from r3l.methods import plan
from r3l.pipeline.counterfactual import counterfactuals
from r3l.pipeline.settings.continuing import save_config
from r3l.pipeline.stages.identity import plan_of_stage
from r3l.records import SamplingPlan
from r3l.store.catalog import connect
from r3l.store.check import check_run
from r3l.store.genealogy import why
from r3l.store.stage import Store
from tests.support.broken_rows import broken_rows
from tests.support.exploration_group import base, played, trajectory
from tests.support.fakes import CorridorPool, explorer
from tests.support.rehearsal import TASKS, rehearse, walker
from tests.support.store_iteration import commit_iteration
from tests.unit.test_turn_advantages import credited


def reaching(attempt, reward, *shares):
    """An episode whose turns leave these shares of sub-goals reached; None: the environment told nothing."""
    episode = played(
        base(attempt, reward=reward, turns=len(shares)), *(([1], [10 * attempt + k]) for k in range(len(shares)))
    )
    turns = [replace(turn, progress=share) for turn, share in zip(episode.turns, shares, strict=True)]
    return replace(episode, turns=turns)


def test_process_supervision_agrees_with_a_calculation_by_hand():
    """Gains .5, 0, .5 and .5, -.5 (the second ruined what it had): mean .2, and the sums of what is left from each
    turn."""
    episodes = [reaching(0, 1.0, 0.5, 0.5, 1.0), reaching(1, 0.0, 0.5, 0.0)]
    won, lost = credited(ProcessSupervisionSettings(scale="none"), episodes)
    assert won.turn_advantages == pytest.approx([0.3 - 0.2 + 0.3, -0.2 + 0.3, 0.3])
    assert lost.turn_advantages == pytest.approx([0.3 - 0.7, -0.7])
    own, ruined = credited(ProcessSupervisionSettings(scale="none", discount=0), episodes)
    assert own.turn_advantages == pytest.approx([0.3, -0.2, 0.3])
    assert ruined.turn_advantages == pytest.approx([0.3, -0.7])
    # squares .09 .04 .09 .09 .49 = .8, over 4: deviation sqrt(.2)
    scaled = credited(ProcessSupervisionSettings(discount=0), episodes)[1]
    assert scaled.turn_advantages == pytest.approx([0.3 / 0.2**0.5, -0.7 / 0.2**0.5], rel=1e-5)


def test_a_malformed_reply_gains_nothing_and_an_untold_world_has_one_sub_goal():
    settings = ProcessSupervisionSettings(scale="none", discount=0)
    told = credited(settings, [reaching(0, 0.0, 0.5, None, 0.5)])[0]
    assert told.turn_advantages == pytest.approx([0.5 - 1 / 6, -1 / 6, -1 / 6])
    untold = credited(settings, [reaching(0, 1.0, None, None), reaching(1, 0.0, None, None)])
    assert [one.turn_advantages for one in untold] == [pytest.approx([-0.25, 0.75]), pytest.approx([-0.25, -0.25])]


def test_the_household_tells_how_far_a_turn_came():
    """A solved game's turns reach all sub-goals, none of them twice."""
    from r3l.environments.household.engine import engine_of
    from r3l.environments.household.solver import solve

    settings = compose(environment="household", assignments=["environment.train_tasks=1"]).environment
    task = HouseholdWorld(settings).tasks("train")[0]
    episode = HouseholdEnvironment()
    episode.reset(task)
    engine = engine_of(task.payload)
    shares = [episode.step(action).progress for action in solve(engine, engine.first)]
    assert shares == sorted(shares)
    assert (shares[0] < 1.0, shares[-1]) == (True, 1.0)


def continuation(of, turn, number, reward, status="completed"):
    return trajectory(
        f"base={of}/from={turn}/continuation={number}", "continuation", number, reward=reward, status=status,
        base_id=base(of).trajectory_id, parent_id=base(of).trajectory_id, pivot_turn=turn,
    )  # fmt: skip


def test_vineppo_agrees_with_a_calculation_by_hand():
    """Base 0 wins in 4 turns; from its turn 1 one of two continuations wins, from turn 3 both. Base 1 loses in 2; from
    its turn 1 none wins, and one that diverged does not count. The group's mean, 1/2, is what the start is worth."""
    episodes = [reaching(0, 1.0, None, None, None, None), reaching(1, 0.0, None, None)]
    made = [
        continuation(0, 1, 0, 1.0), continuation(0, 1, 1, 0.0), continuation(0, 3, 0, 1.0), continuation(0, 3, 1, 1.0),
        continuation(1, 1, 0, 0.0), continuation(1, 1, 1, 1.0, status="diverged"),
    ]  # fmt: skip
    everything = [*episodes, *(played(one) for one in made)]
    won, lost = credited(VinePPOSettings(), everything)
    assert won.turn_advantages == pytest.approx([0.5 - 0.5, 1.0 - 0.5, 1.0 - 0.5, 1.0 - 1.0])
    assert lost.turn_advantages == pytest.approx([0.0 - 0.5, 0.0 - 0.0])
    assert (won.advantage, won.group_size) == (0.5, 2)  # continuations are no members
    scaled = credited(VinePPOSettings(scale="std"), everything)[0]
    assert scaled.turn_advantages == pytest.approx([0, 0.5 / 0.5**0.5, 0.5 / 0.5**0.5, 0], rel=1e-5)


def test_gains_between_values_sum_to_the_reward_less_the_first():
    found = value_differences({0: 0.25, 2: 0.5, 5: 0.125}, 1.0, 7)
    assert found.tolist() == [0.25, 0.25, -0.375, -0.375, -0.375, 0.875, 0.875]
    assert found[[0, 2, 5]].sum() == 1.0 - 0.25
    assert value_differences({0: 0.25}, 1.0, 3).tolist() == [0.75] * 3
    assert value_differences({0: 0.25}, 1.0, 0).tolist() == []


@pytest.mark.parametrize(
    ("turns", "most", "expected"),
    [(8, 3, [2, 4, 6]), (5, 3, [2, 3, 4]), (4, 3, [1, 2, 3]), (3, 8, [1, 2]), (1, 3, []), (0, 3, []), (9, 0, [])],
)
def test_continued_turns_are_spread_over_the_episode(turns, most, expected):
    assert continued_turns(turns, most) == expected


def test_only_the_stage_of_continuations_depends_on_how_many_there_are():
    asked = plan(VinePPOSettings(continuations=2, turns_sampled=5), 8)
    assert (asked.bases, asked.continuations, asked.continued_turns) == (8, 2, 5)
    assert plan_of_stage(asked, "continuations") == {"continuations": 2, "continued_turns": 5}
    assert plan_of_stage(asked, "base") == plan_of_stage(plan(GRPOSettings(), 8), "base")
    assert not {"continuations", "continued_turns"} & set(plan_of_stage(asked, "retries"))


TWICE = SamplingPlan(bases=1, continued_turns=1, continuations=2)


def test_a_continuation_stands_behind_the_bases_own_tokens():
    world = explorer(walker)
    bases = stages.base_stage(world, TASKS[:1], TWICE)
    made, events = stages.continuations_stage(world, TASKS[:1], TWICE, bases)
    base_turns = bases[0].turns
    assert [one.trajectory.trajectory_id for one in made] == [
        f"iteration=0/task=0/base=0/from=4/continuation={n}" for n in range(2)
    ]
    assert events == []
    for one in made:
        assert (one.trajectory.pivot_turn, one.turns[0].turn, one.trajectory.turns) == (4, 4, 8)
        assert one.turns[0].context_ids == base_turns[4].context_ids
        assert one.trajectory.rollback_hashes == [turn.observation_hash for turn in base_turns[:5]]
        assert one.trajectory.response_tokens == sum(len(turn.response_ids) for turn in one.turns)
    asked = next(prompt for name, prompt, _ in world.engine.requests if "from=4/continuation=0/turn=4" in name)
    ids = [token for turn in base_turns[:4] for token in (*turn.context_ids, *turn.response_ids)]
    assert asked == "".join(map(chr, ids + base_turns[4].context_ids))


def test_a_continuation_that_diverged_is_an_event_and_no_value():
    clean = explorer(walker)
    bases = stages.base_stage(clean, TASKS[:1], TWICE)
    made, events = stages.continuations_stage(explorer(walker, CorridorPool(drift={3})), TASKS[:1], TWICE, bases)
    assert {one.trajectory.status for one in made} == {"diverged"}
    assert [(one.event, one.reason) for one in events] == [("diverged", "turn 3: other observation than recorded")] * 2


@pytest.fixture
def run(tmp_path):
    config = compose(
        run="demo",
        method="vineppo",
        store={"root": str(tmp_path)},
        rollout={"group_size": 2},
        assignments=["method.continuations=2", "method.turns_sampled=2"],
    )
    return config, rehearse(config.method, group_size=2)[0]


def committed(config, tables):
    store = Store.open(config.store.root)
    save_config(store, config, 0)
    commit_iteration(store, tables=tables)
    return store


def test_continuations_are_accounted_for_counted_and_shown(run):
    config, tables = run
    store = committed(config, tables)
    assert check_run(store, "demo") == []
    with connect(store) as connection:
        account = connection.execute("SELECT attempts, led_on FROM account WHERE stage = 'continuations'").fetchone()
        counted = connection.execute("SELECT continuations, continued_turns FROM iterations").fetchone()
        own = (
            "SELECT count(*) FILTER (turn >= pivot_turn), count(*) FROM turns JOIN continuations USING (trajectory_id)"
        )
        turns = connection.execute(own).fetchone()
    assert account == (16, 16)  # 2 tasks x 2 bases x 2 turns x 2
    assert counted == (16, turns[0])
    assert turns[0] == turns[1]
    name = tables["continuations"]["trajectories"][0].trajectory_id
    assert "played on from its turn" in str(why(store, "demo", name))
    reader = Reader(store, ["demo"])
    hit = find(reader, Line("demo"), name)
    whole = group(reader, Line("demo"), 0, hit.group_id)
    assert len(whole.attempts) == 2  # the bases
    shown = whole.attempt(name)
    assert (shown.base["trajectory_id"], shown.retry["trajectory_id"]) == (name.split("/from=")[0], name)


def test_methods_that_need_no_continuations_are_compared_on_the_same_rollouts(run):
    config, tables = run
    made, others = counterfactuals(committed(config, tables), "demo", "", 0)
    shown = {one.preset: one.mass for one in made}
    assert {"this run", "grpo", "gigpo", "process_supervision", "rloo"} <= set(shown)
    assert "paper" in others
    assert shown["this run"].turns != shown["grpo"].turns


FORGED = {
    "5_rollback": lambda one: replace(one, rollback_hashes=["0" * 16, *one.rollback_hashes[1:]]),
    "7_conservation": lambda one: replace(one, status="diverged", reason=""),
    "4_turns_once": lambda one: replace(one, turns=one.turns + 1),
}


def test_a_continuation_that_is_not_as_it_says_is_found(run, tmp_path):
    _, tables = run
    store, rows = Store.open(str(tmp_path)), tables["continuations"]["trajectories"]
    honest = rows[0]
    for check, change in FORGED.items():
        rows[0] = change(honest)
        commit_iteration(store, check, tables=tables)
    found = broken_rows(store, list(FORGED))
    assert [check for check in FORGED if check not in {one.check for one in found[check]}] == []

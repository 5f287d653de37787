"""The credit exam: values and advantages of turns worked out by hand, ways to give credit scored on them, and the
corridor, whose walker wins a known share of what is played on from each state."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from flows.cli.app import app_of
from r3l import plugins
from r3l.config.compose import compose
from r3l.credit.advantages import Floats
from r3l.engines.base import PolicySnapshot
from r3l.errors import ConfigError, StoreError
from r3l.lab.exam import play
from r3l.lab.exam.folder import SAME, Folder
from r3l.lab.exam.page import page, write_page
from r3l.lab.exam.play import Asked, play_exam
from r3l.lab.exam.records import Exam, Group, State, states_of
from r3l.lab.exam.regression import NAME, regressions
from r3l.lab.exam.reply_gradients import LIMITS, ReplyGradients
from r3l.lab.exam.scores import interval, pivots, ranks, score, scores
from r3l.lab.exam.truth import even, odd, reliability, true_advantages
from r3l.lab.exam.ways import OWN, ways
from r3l.methods.base import Objective
from r3l.methods.rows import explore_row
from r3l.pipeline import policies
from r3l.pipeline.settings.continuing import save_config
from r3l.pipeline.stages import calls
from r3l.pipeline.workbench import Workbench
from r3l.records import Credit, Episode, OraclePivot
from r3l.store.stage import Store
from r3l.training.gradients import RowScores, row_gradient
from r3l.training.rows import UpdateRow
from r3l.training.trie.layouts import TrieLayout
from tests.support.exploration_group import base, distilled, played, retry
from tests.support.fakes import explorer
from tests.support.records import corridor_tasks
from tests.support.rehearsal import rehearse, tiny_policy, walker
from tests.support.store_iteration import commit_iteration

FIRST, SECOND, THIRD, OTHER = ([1], [11, 12]), ([2], [13]), ([3], [14]), ([2], [23])
START, AFTER_ONE, AT_TWO = (State("iteration=0/task=0/base=0", turn) for turn in range(3))
STITCHED = State("iteration=0/task=0/distilled=0", 2)
# numbers 0 to 2 are VinePPO's, and say the opposite of what the others do
REWARDS = {
    START: dict(enumerate([1, 1, 1, 1, 0, 0, 0])),  # 1/4
    AFTER_ONE: dict(enumerate([0, 0, 0, 1, 0, 1, 0])),  # 1/2; by halves 1 and 0
    AT_TWO: dict(enumerate([1, 1, 1, 0, 0, 0, 0])),  # 0
    STITCHED: dict(enumerate([0, 0, 1, 1, 1, 1, 0])),  # 3/4
}


EPISODES = [
    played(base(0, turns=3, response_tokens=4), FIRST, SECOND, THIRD),
    played(distilled(0, pivot=1, reward=1.0, turns=3, response_tokens=4), FIRST, OTHER, THIRD),
]


@pytest.fixture
def group() -> Group:
    """A base of three turns that failed, and what was stitched to its first one, which won in three."""
    members = [one.trajectory for one in EPISODES]
    return Group(members, [one.turns for one in EPISODES], states_of(EPISODES), REWARDS, {members[0].trajectory_id: 1})


def test_a_state_is_named_by_whoever_came_there_first(group):
    assert group.states == [[START, AFTER_ONE, AT_TWO], [START, AFTER_ONE, STITCHED]]


def test_the_value_after_a_turn_less_that_before_it(group):
    """Base: 1/4, 1/2, 0 and its reward 0. Stitched: 1/4, 1/2, 3/4 and its reward 1."""
    lost, won = true_advantages(group)
    assert lost.tolist() == [0.25, -0.5, 0.0]
    assert won.tolist() == [0.25, 0.25, 0.25]
    assert true_advantages(group, even)[0].tolist() == [0.5, -1.0, 0.0]  # numbers 3 and 5: 1/2, 1, 0
    assert true_advantages(group, odd)[0].tolist() == [0.0, 0.0, 0.0]  # numbers 4 and 6: all 0


def test_a_state_without_continuations_leaves_its_turns_unmeasured(group):
    unsure = replace(group, rewards={state: of for state, of in REWARDS.items() if state != AT_TWO})
    assert np.isnan(true_advantages(unsure)[0]).tolist() == [False, True, True]
    assert score(ways()["GRPO"], [unsure]).turns == 4


def test_reliability_counts_a_shared_turn_once(group):
    """Even numbers: base .5 -1 0; stitched from its own reply on: 1 - 1, 1 - 1. Odd: 0 0 0; .5 - 0, 1 - .5."""
    halves = np.array([[0.5, -1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.5, 0.5]])
    r = np.corrcoef(halves)[0, 1]
    assert reliability([group]) == pytest.approx(2 * r / (1 + r))
    r_of_ranks = np.corrcoef([4, 0, 2, 2, 2], [1, 1, 1, 3.5, 3.5])[0, 1]
    assert reliability([group], ranks) == pytest.approx(2 * r_of_ranks / (1 + r_of_ranks))
    certain = replace(group, rewards={state: dict.fromkeys(range(9), k / 4) for k, state in enumerate(REWARDS)})
    assert reliability([certain]) == pytest.approx(1.0)


def test_scores_agree_with_a_calculation_by_hand(group):
    """Truth .25 -.5 0 and .25 .25 .25: |truth| sums to 1.5. Credit -1 on the base, 1 on the other: .25 of it has the
    wrong sign. With the first turn of both masked .5 has none, and nothing is wrong."""
    blunt = score(lambda _: [np.full(3, -1.0), np.ones(3)], [group])
    assert (blunt.wrong, blunt.silent, blunt.turns) == (pytest.approx(0.25 / 1.5), 0.0, 6)
    # ranks of credit 1 1 1 4 4 4, of truth 3.5 0 1 3.5 3.5 3.5
    by_hand = np.corrcoef([1, 1, 1, 4, 4, 4], [3.5, 0, 1, 3.5, 3.5, 3.5])[0, 1]
    assert blunt.rank == pytest.approx(by_hand)
    masked = score(lambda _: [np.array([0, -1.0, -1.0]), np.array([0, 1.0, 1.0])], [group])
    assert (masked.wrong, masked.silent) == (0.0, pytest.approx(0.5 / 1.5))
    exact = score(true_advantages, [group])
    assert (exact.rank, exact.cosine) == (pytest.approx(1.0), pytest.approx(1.0))
    # masses in tokens of |tau| = 4: the first turn, of two tokens and both members, 0 against 2/4 (.25 + .25);
    # base -1/4 and -1/4 against -.5/4 and 0; stitched 1/4 and 1/4 against .25/4 and .25/4
    assert blunt.cosine == pytest.approx((0.5 + 0 + 0.25 + 0.25) / (2 * (1**2 + 0.5**2 + 2 * 0.25**2) ** 0.5))
    assert score(lambda _: [np.ones(3), np.ones(3)], [group]).rank == 0.0


def test_ways_give_the_credit_that_the_methods_rows_would_carry(group):
    """Rewards 0 and 1: scaled -.7071 and .7071; R3L masks the first turn of both and lifts the winner to 3."""
    credit = {name: way(group) for name, way in ways().items()}
    low = 0.5**0.5
    assert credit["GRPO"][0] == pytest.approx([-low] * 3, rel=1e-5)
    assert credit[OWN][0] == pytest.approx([0, -low, -low], rel=1e-5)
    assert credit[OWN][1].tolist() == [0, 3, 3]
    assert credit["R3L without amplification"][1] == pytest.approx([0, low, low], rel=1e-5)
    assert credit["R3L, pivot at the first turn"][1].tolist() == [3, 3, 3]
    assert credit["R3L, the oracle's pivot"][0] == pytest.approx([0, -low, -low], rel=1e-5)


def test_a_moved_pivot_masks_of_the_stitched_no_more_than_is_shared(group):
    late = replace(group, oracle={group.members[0].trajectory_id: 2})
    lost, won = ways()["R3L, the oracle's pivot"](late)
    assert (lost[:2].tolist(), won.tolist()) == ([0, 0], [0, 3, 3])


def test_vineppo_reads_the_continuations_that_the_truth_does_not(group):
    """The start is the group's mean 1/2; from turn 1 on 0, from turn 2 on 1 (base) and 1/3 (stitched)."""
    lost, won = ways()["VinePPO"](group)
    assert lost.tolist() == [-0.5, 1.0, -1.0]
    assert won == pytest.approx([-0.5, 1 / 3, 2 / 3])
    truth_only = {state: {k: of[k] for k in of if k < 3} for state, of in REWARDS.items()}
    assert ways()["VinePPO"](replace(group, rewards=truth_only))[0].tolist() == [-0.5, 1.0, -1.0]


def test_pivots_are_held_against_the_largest_fall(group):
    """The base falls most at turn 1, its pivot. By halves: even says turn 1, where odd has 0; odd's first turn, .5."""
    found = pivots([group])
    assert (found.bases, found.exact, found.near, found.guess) == (1, 1.0, 1.0, pytest.approx(1 / 3))
    assert (found.at_pivot, found.at_oracle, found.at_any) == (-0.5, -0.5, pytest.approx(-0.25 / 3))
    assert found.at_worst == pytest.approx((0.0 + 0.5) / 2)
    assert pivots([replace(group, members=group.members[:1], states=group.states[:1])]) is None


def test_an_interval_is_students():
    assert interval([1.0, 2.0, 3.0]).half == pytest.approx(4.303 / 3**0.5)
    assert str(interval([0.5])) == "0.500"


@pytest.fixture(scope="module")
def examined(tmp_path_factory):
    folder = tiny_policy(tmp_path_factory.mktemp("policy") / "p", 0)
    return ReplyGradients(folder, None, compose().policy)


@pytest.fixture(autouse=True)
def loaded_once(examined, monkeypatch):
    monkeypatch.setattr(play, "ReplyGradients", lambda *_: examined)


def with_policy(folder: Path, episodes: list[Episode], attempts: list[Episode], group: Group) -> Group:
    """Keep what a policy says of a group in an exam's folder, and read it from there."""
    there = Folder(folder)
    there.begin(dict.fromkeys(SAME, 0) | {"run": "demo"}, [(episodes, group.states)], [])
    assert not there.has_policy(0)
    play.ask_policy(there, compose(), PolicySnapshot("", ""), [episodes], attempts[len(episodes) :], print)
    assert there.has_policy(0)
    return replace(there.exam().groups[0], rewards=group.rewards)


def test_the_cosine_of_gradients_is_that_of_the_updates_own_loss(examined, group, tmp_path):
    """The whole update of each credit, by its rows and its loss, against what the products of turns' gradients say."""
    stored = with_policy(tmp_path, EPISODES, EPISODES, group)
    assert stored.products.shape == (5, 5)  # the first turn is shared
    truth = true_advantages(stored)

    def update(advantages: Sequence[Floats]) -> np.ndarray:
        rows = []
        for member, own in zip(EPISODES, advantages, strict=True):
            one = member.trajectory
            credit = Credit(one.trajectory_id, one.group_id, 0, 0, one.kind, 0, 2, 0, 0, 0, 1, "", 0, 0, own.tolist())
            made = explore_row(compose(method="rloo").method, Objective("policy_gradient"), member, credit)
            rows.append(UpdateRow.read(asdict(made)))
        slopes = [row_gradient(row, RowScores(np.zeros(len(row.positions))), 1.0) for row in rows]
        examined.policy.model.zero_grad(set_to_none=True)
        TrieLayout().backward(examined.policy.decoder, rows, slopes, LIMITS)
        return np.concatenate([p.grad.numpy().ravel() for _, p in examined.policy.trainable()]).astype(np.float64)

    rng = np.random.default_rng(0)
    true = update(truth)
    for _ in range(5):
        credit = [rng.normal(size=3), rng.normal(size=3)]
        given = update(credit)
        expected = given @ true / np.linalg.norm(given) / np.linalg.norm(true)
        assert score(lambda _, credit=credit: credit, [stored]).gradient == pytest.approx(expected, abs=1e-5)
    assert score(true_advantages, [stored]).gradient == pytest.approx(1.0)
    assert score(lambda _: [np.zeros(3)] * 2, [stored]).gradient == 0.0
    assert np.isnan(score(true_advantages, [group]).gradient)  # no policy was asked


def test_teachers_gaps_are_kept_token_by_token_and_make_the_credit(examined, group, tmp_path):
    """Each reply alone, by transformers: behind the won attempt, and behind what the retry was told at turn 1."""
    won = played(base(1, reward=1.0, turns=1), ([1], [7, 8]))
    told = played(retry(0, pivot=1), ([2, 90, 91], [9]), first=1)
    stored = with_policy(tmp_path, EPISODES, [*EPISODES, won, told], group)
    lost, stitched = (one.trajectory.trajectory_id for one in EPISODES)

    def logp(before: list[int], reply: list[int]) -> np.ndarray:
        with torch.no_grad():
            logits = examined.policy.model(torch.tensor([before + reply])).logits[0].double().log_softmax(-1)
        return np.array([float(logits[len(before) + k - 1, token]) for k, token in enumerate(reply)])

    shown = [1, 7, 8]
    expected = [
        logp([*shown, 1], [11, 12]) - logp([1], [11, 12]),
        logp([*shown, 1, 11, 12, 2], [13]) - logp([1, 11, 12, 2], [13]),
    ]
    assert np.concatenate(stored.gaps["success"][lost][:2]) == pytest.approx(np.concatenate(expected), abs=0.02)
    assert stored.gaps["guidance"].keys() == {lost}  # the retry was of the base
    guided = logp([1, 11, 12, 2, 90, 91], [13]) - logp([1, 11, 12, 2], [13])
    assert stored.gaps["guidance"][lost][0] == pytest.approx([0, 0], abs=1e-4)
    assert stored.gaps["guidance"][lost][1] == pytest.approx(guided, abs=0.02)
    # GRPO's advantage is -low on the base: (1 - .5 + .5 clip(exp(-gap), .8, 1.2)) of it, on average over a reply
    credit, low = {name: way(stored) for name, way in ways().items()}, 0.5**0.5
    gaps = stored.gaps["success"][lost]
    shares = [np.mean(0.5 + 0.5 * np.clip(np.exp(-np.array(gap)), 0.8, 1.2)) for gap in gaps]
    assert credit["RLSD"][0] == pytest.approx(-low * np.array(shares), rel=1e-5)
    assert credit["SDPO"][0] == pytest.approx([np.mean(gap) for gap in gaps])
    assert credit["SERL"][1] == pytest.approx(credit["GRPO"][1])  # no teacher read of the stitched one
    assert ways()["SDPO"](group)[0].tolist() == [0, 0, 0]  # no row without a teacher
    assert {stitched} & stored.gaps["success"].keys() == {stitched}


def test_the_regression_is_learned_on_the_other_policies_alone(group):
    """Truths that the outcome makes are found; an exam's own truth changes nothing of what it is told."""
    exams = [Exam({"run": f"easy-{k}"}, [group]) for k in range(3)]
    assert regressions(exams[:1]) == []
    plain = [way(group) for way in regressions(exams)]
    other = replace(group, rewards={state: dict.fromkeys(range(9), 1 - k / 3) for k, state in enumerate(REWARDS)})
    moved = [way(group) for way in regressions([replace(exams[0], groups=[other]), *exams[1:]])]
    assert np.concatenate(moved[0]) == pytest.approx(np.concatenate(plain[0]))
    assert np.abs(np.concatenate(moved[1]) - np.concatenate(plain[1])).max() > 0.01
    scored = scores(ways(), exams)
    assert [one.cosine for one in scored[NAME]] == pytest.approx([scored[NAME][0].cosine] * 3)
    assert scored[NAME][0].cosine > scored["GRPO"][0].cosine


TEN_LINES = """
import numpy as np
from r3l.methods.base import Method


class LastTurn(Method):
    credits_turns = True

    def turn_advantages(self, settings, group):
        return [np.eye(len(own))[-1] * one.scaled for one, own in zip(group.credit, group.turns)]
"""


@pytest.fixture
def ten_lines(tmp_path, monkeypatch):
    (tmp_path / "tenlines.py").write_text(TEN_LINES)
    monkeypatch.setenv(plugins.NAMED, "")
    monkeypatch.setenv(plugins.FOLDERS, str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    return "tenlines:LastTurn"


def test_a_method_of_ten_lines_from_outside_is_scored(group, ten_lines):
    _, won = ways([ten_lines])[ten_lines](group)
    assert won == pytest.approx([0, 0, 0.5**0.5], rel=1e-5)
    with pytest.raises(ConfigError, match="nosuch"):
        ways(["nosuch"])


def half_wins(request_id: str, prompt: str) -> str:
    """Of what is played on from a state, every even number walks right; odd ones wait."""
    if "/continuation=" not in request_id:
        return walker(request_id, prompt)
    number = int(request_id.split("/continuation=")[1].split("/")[0])
    return "!right" if number % 2 == 0 else "!wait"


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """An iteration of the corridor: two tasks with two bases each, and three retries that stitched."""
    config = compose(run="demo", store={"root": str(tmp_path / "store")}, rollout={"group_size": 4})
    tables, _ = rehearse(config.method)
    failed = [one for one in tables["base"]["trajectories"] if not one.success]
    verdicts = [OraclePivot(one.trajectory_id, 0, one.task, one.group_id, 2, "lost") for one in failed]
    tables["oracle_pivots"] = {"oracle_pivots": verdicts}
    store = Store.open(config.store.root)
    save_config(store, config, 0)
    commit_iteration(store, tables=tables)
    policy = PolicySnapshot("", "policy-0")
    monkeypatch.setattr(policies, "find", lambda *_: policies.Policies(policy, policy, policy, None, None))
    monkeypatch.setattr(play, "ask_policy", lambda *_: None)  # it is tested by itself
    worlds = []
    monkeypatch.setattr(Workbench, "_start", lambda _: worlds.append(explorer(half_wins)) or worlds[-1])
    return store, tmp_path / "exam", worlds


def test_the_corridor_is_worth_what_its_walker_wins(stored):
    """Half of what is played from before the trap wins, nothing from behind it; a state is played on from once."""
    store, folder, worlds = stored
    exam = play_exam(store, Asked("demo", continuations=7), folder)
    first = exam.groups[0]
    lost, won = first.members[0], first.members[1]
    assert (lost.reward, won.reward) == (0.0, 1.0)
    truth = dict(zip([one.trajectory_id for one in first.members], true_advantages(first), strict=True))
    assert truth[lost.trajectory_id].tolist() == [0, 0, -0.5, 0, 0, 0, 0, 0]
    assert truth[won.trajectory_id].tolist() == [0, 0, 0, 0, 0.5]
    assert first.oracle == {lost.trajectory_id: 2}
    states = {state for group in exam.groups for own in group.states for state in own}
    begun = [name for name, _, _ in worlds[0].engine.requests if name.count("turn=") == 1]
    played_on = {name.rsplit("/turn=", 1)[0] for name in begun}
    assert len(played_on) == 7 * len(states)
    found = pivots(exam.groups)
    assert (found.exact, found.at_pivot) == (1.0, -0.5)  # the walker's reflections name turn 2


def test_what_was_played_is_kept_and_only_the_rest_is_played(stored):
    store, folder, worlds = stored
    play_exam(store, Asked("demo", continuations=5), folder)
    once = Folder(folder).continuations(0)
    play_exam(store, Asked("demo", continuations=5), folder)
    assert len(worlds) == 1  # the second exam started nothing
    play_exam(store, Asked("demo", continuations=7), folder)
    assert {name.split("/continuation=")[1][0] for name, _, _ in worlds[1].engine.requests} == {"5", "6"}
    more = Folder(folder).continuations(0)
    assert [one for one in more if one.number < 5] == once
    play_exam(store, Asked("demo", continuations=7), folder.with_name("again"))
    assert Folder(folder.with_name("again")).continuations(0) == more  # the same seed, the same rows


def test_the_seed_reaches_the_sampling_and_a_folder_holds_one_exam(stored):
    store, folder, worlds = stored
    play_exam(store, Asked("demo", continuations=5), folder)
    with pytest.raises(ConfigError, match="seed=0, and 1 is asked for"):
        play_exam(store, Asked("demo", continuations=5, seed=1), folder)
    play_exam(store, Asked("demo", continuations=5, seed=1), folder.with_name("other"))
    seeds = [{name: sampling.seed for name, _, sampling in world.engine.requests} for world in worlds]
    assert seeds[0].keys() == seeds[1].keys()
    assert not set(seeds[0].values()) & set(seeds[1].values())
    assert Folder(folder).continuations(0)[0].seed != Folder(folder.with_name("other")).continuations(0)[0].seed


def test_a_sample_of_groups_is_examined(stored):
    store, folder, _ = stored
    assert [len(play_exam(store, Asked("demo", continuations=5, groups=1), folder).groups)] == [1]
    with pytest.raises(StoreError, match=r"has no exam\.json"):
        Folder(folder.parent / "nothing").exam()


def test_another_policy_may_not_play_on(stored, monkeypatch):
    store, folder, _ = stored
    other = PolicySnapshot("", "another")
    monkeypatch.setattr(policies, "find", lambda *_: policies.Policies(other, other, other, None, None))
    with pytest.raises(ConfigError, match=r"sampled by policy policy-0, and policy\.path now has another"):
        play_exam(store, Asked("demo"), folder)


def test_the_page_has_every_way_and_both_answers(stored):
    store, folder, _ = stored
    exams = [play_exam(store, Asked("demo", continuations=7), folder)]
    scored = scores(ways(), exams)
    text = page(exams, scored)
    assert all(f"| {name} |" in text for name in scored)
    assert "the pivot is the turn of the largest fall in 1.000" in text
    pytest.importorskip("matplotlib")
    write_page(exams, scored, folder / "exam.md")
    assert (folder / "exam" / "scores.svg").read_text().startswith("<?xml")
    assert isinstance(exams[0], Exam)


def test_the_command_plays_a_run_and_scores_what_somebody_else_played(stored, ten_lines):
    store, folder, worlds = stored

    def told(*words: str) -> list[dict]:
        done = CliRunner().invoke(app_of(["exam"]), ["exam", *words, "--json"])
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    asked = ("demo", "--store", store.root, "--out", str(folder), "--continuations", "7")
    sure, *scored = told(*asked, "--method", ten_lines)
    assert sure == {"reliability": reliability(Folder(folder / "demo").exam().groups)}
    by_way = {one["way"]: one["policies"]["demo"] for one in scored}
    assert by_way["GRPO"]["turns"] == by_way[ten_lines]["turns"]
    assert by_way[OWN] != by_way[ten_lines]
    assert told(str(folder / "demo")) == told(*asked)
    assert len(worlds) == 1
    nothing = CliRunner().invoke(app_of(["exam"]), ["exam"])
    assert "no run is named" in str(nothing.exception)


def test_with_a_policy_the_groups_are_sampled_and_no_update_is_taken(stored, monkeypatch):
    store, folder, _ = stored
    monkeypatch.setattr("r3l.pipeline.stages.calls.draw", lambda config, iteration: corridor_tasks(iteration, 2))
    monkeypatch.setattr(calls, "other_world", lambda *_: None)
    monkeypatch.setattr(Workbench, "asks_oracle", False)
    words = [
        "exam", "new", "--policy", "latent", "--environment", "alfworld", "--store", store.root, "--out", str(folder),
    ]  # fmt: skip
    done = CliRunner().invoke(
        app_of(["exam"]), [*words, "--continuations", "5", "--set", "rollout.group_size=4", "--json"]
    )
    assert done.exit_code == 0, done.output
    stages = {ref.stage for ref in store.stages("new", "", 0)}
    assert {"base", "distilled", "credit"} <= stages
    assert not {"training_rows", "updates"} & stages

"""Advantages of single turns, from the method through rows, losses, views and checks; GiGPO's against its authors'."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from r3l.audit.attempts import find, group, panes
from r3l.audit.lines import Line
from r3l.audit.reader import Reader
from r3l.config.compose import compose
from r3l.config.methods.rivals import GiGPOSettings, GRPOSettings, HGPOSettings
from r3l.credit.turns import anchored_advantages, at_the_end, discounted_returns
from r3l.losses import LOSSES
from r3l.methods import METHODS, credit_stage, training_rows_stage
from r3l.methods.base import Method
from r3l.methods.mass import mass_of
from r3l.methods.stages import credit_groups
from r3l.store.catalog import connect
from r3l.store.genealogy import why
from r3l.store.stage import Store
from r3l.training.rows import UpdateRow
from tests.support.broken_rows import broken_rows
from tests.support.exploration_group import base, played
from tests.support.rehearsal import rehearse
from tests.support.store_iteration import commit_iteration
from tests.unit.test_loss_functions import LOGP, OLD, SETTINGS, WEIGHTS


def walked(attempt, reward, seen, **invalid):
    """An episode that saw these states, one letter each, and said one token a turn; `invalid`: turn k was malformed."""
    episode = played(
        base(attempt, reward=reward, turns=len(seen)), *(([1], [10 * attempt + k]) for k in range(len(seen)))
    )
    turns = [
        replace(turn, observation_hash=state, valid=f"turn_{turn.turn}" not in invalid)
        for turn, state in zip(episode.turns, seen, strict=True)
    ]
    return replace(episode, turns=turns)


def credited(settings, episodes):
    turns = [turn for episode in episodes for turn in episode.turns]
    return credit_stage(settings, [episode.trajectory for episode in episodes], turns)[0]


WALKS = (("abcd", 1.0), ("abed", 0.0), ("aaf", 0.0), ("acd", 1.0))
# What the functions of gigpo/core_gigpo.py give for these walks: float32, seven decimals. With the deviation from the
# authors' DrMAS, whose episodes count once each; without it DrMAS and verl-agent agree.
PUBLISHED = {
    "std": [
        [1.9140787, 1.5731295, 0.8660239, 1.4433732],
        [-1.5959194, -1.5731295, -0.8660239, -2.0207224],
        [-1.5959194, -1.5959194, -0.8660239],
        [2.0076551, 0.8660239, 1.4433732],
    ],
    "none": [
        [1.0053999, 0.95125, 0.5, 0.8333333],
        [-0.851975, -0.95125, -0.5, -1.1666667],
        [-0.851975, -0.851975, -0.5],
        [1.050525, 0.5, 0.8333333],
    ],
}


@pytest.mark.parametrize("scale", ["std", "none"])
def test_gigpo_agrees_with_its_authors_to_six_digits(scale):
    episodes = [walked(n, reward, seen) for n, (seen, reward) in enumerate(WALKS)]
    found = [one.turn_advantages for one in credited(GiGPOSettings(scale=scale), episodes)]
    for ours, theirs in zip(found, PUBLISHED[scale], strict=True):
        assert ours == pytest.approx(theirs, abs=2e-6)


def test_gigpo_agrees_with_a_calculation_by_hand():
    """Two walks, discount 0.5. Won in 3 turns: returns 1/4, 1/2, 1; lost: zeros. State a is seen by both at turn 0 and
    by the second again at turn 1; b by the first alone; c by both at the end."""
    one, other = credited(
        GiGPOSettings(scale="none", discount=0.5, step_weight=2.0), [walked(0, 1.0, "abc"), walked(1, 0.0, "aac")]
    )
    assert (one.advantage, other.advantage) == (0.5, -0.5)
    # a: 1/4, 0, 0, mean 1/12; b: alone, 0; c: 1, 0, mean 1/2
    assert one.turn_advantages == pytest.approx([0.5 + 2 * (1 / 4 - 1 / 12), 0.5 + 0, 0.5 + 2 * 1 / 2])
    assert other.turn_advantages == pytest.approx([-0.5 - 2 / 12, -0.5 - 2 / 12, -0.5 - 2 * 1 / 2])


def test_gigpo_without_its_step_term_is_grpo():
    episodes = [walked(n, reward, seen) for n, (seen, reward) in enumerate(WALKS)]
    grpo = credited(GRPOSettings(), episodes)
    for ours, theirs in zip(credited(GiGPOSettings(step_weight=0), episodes), grpo, strict=True):
        assert ours.turn_advantages == [theirs.advantage] * len(ours.turn_advantages)
        assert theirs.turn_advantages is None


def test_a_malformed_reply_leaves_the_state_as_it_was():
    """The answer to a malformed reply says what is wrong with it: equal answers are no equal states."""
    settings = GiGPOSettings(scale="none", discount=1.0)
    one, other = credited(settings, [walked(0, 1.0, "a?b", turn_0=True), walked(1, 0.0, "c?b", turn_0=True)])
    assert one.turn_advantages == pytest.approx([0.5, 0.5, 0.5 + 0.5])  # a twice in one walk, with equal returns
    assert other.turn_advantages == pytest.approx([-0.5, -0.5, -0.5 - 0.5])


def test_returns_and_anchored_advantages_agree_with_calculations_by_hand():
    assert discounted_returns([1.0, 0.0, 2.0], 0.5).tolist() == [1 + 0 + 0.5, 1.0, 2.0]
    assert at_the_end(3, 0.7).tolist() == [0, 0, 0.7]
    assert at_the_end(0, 0.7).tolist() == []
    found = anchored_advantages([np.array([3.0, 1.0]), np.array([1.0])], ["xy", "x"], "std")
    # x: 3 and 1, mean 2, deviation sqrt(2); y alone
    assert found[0].tolist() == pytest.approx([1 / math.sqrt(2), 0.0], rel=1e-5)
    assert found[1].tolist() == pytest.approx([-1 / math.sqrt(2)], rel=1e-5)


def test_a_row_has_each_turns_advantage_on_its_reply_and_weights_as_without():
    episodes = [
        played(base(0, reward=1.0, turns=2), ([1, 2], [3, 4]), ([5], [6])),
        played(base(1, turns=1), ([1, 2], [7])),
    ]
    settings = GiGPOSettings(scale="none", discount=0.5)
    credit = credited(settings, episodes)
    rows, _ = training_rows_stage(settings, episodes, [], credit)
    # the observations are equal: returns 1/2, 1, 0 in one group of mean 1/2
    assert rows[0].advantages == pytest.approx([0, 0, 0.5 + 0, 0.5 + 0, 0, 0.5 + 0.5])
    assert rows[1].advantages == pytest.approx([0, 0, -0.5 - 0.5])
    plain, _ = training_rows_stage(GRPOSettings(scale="none"), episodes, [], credited(GRPOSettings(), episodes))
    assert [row.weights for row in rows] == [row.weights for row in plain]
    assert {row.advantages for row in plain} == {None}
    mass = mass_of(settings, episodes, [], {})
    # 1 / (|tau| G) per token: 1/6 of three tokens, 1/2 of the lone one; one group
    assert {(turn.source_id[-1], turn.turn): turn.mass for turn in mass.turns} == pytest.approx(
        {("0", 0): 2 * 0.5 / 6, ("0", 1): 1.0 / 6, ("1", 0): -1.0 / 2}
    )


def test_a_member_of_advantage_0_is_trained_where_a_turn_has_its_own():
    """All solve it, one in fewer turns: the trajectories are alike, their turns are not."""
    episodes = [walked(0, 1.0, "ab"), walked(1, 1.0, "acd")]
    settings = GiGPOSettings(kl_coefficient=0)
    credit = credited(settings, episodes)
    assert [one.advantage for one in credit] == [0, 0]
    rows, events = training_rows_stage(settings, episodes, [], credit)
    assert (len(rows), events) == (2, [])
    record = {name: getattr(rows[0], name) for name in rows[0].__slots__}
    assert UpdateRow.read(record).has_gradient
    assert not UpdateRow.read(record | {"advantages": None}).has_gradient


class TwoTurns(Method):
    """A plug-in's rule that forgets a turn."""

    credits_turns = True

    def turn_advantages(self, settings, group):
        return [np.zeros(2) for _ in group.members]


def test_a_method_that_forgets_a_turn_is_told():
    episode = walked(0, 1.0, "abc")
    with pytest.raises(ValueError, match=r"2 advantages for the 3 turns of .*base=0; return one per turn"):
        credit_groups(TwoTurns(), GRPOSettings(), [episode.trajectory], episode.turns)


@pytest.mark.parametrize(("credit", "turns", "words"), [
    (lambda own: own[:1], None, "Odd.credit: credit of .*base=0.*, expected one of each member"),
    (lambda own: own[::-1], None, "expected one of each member, in their order"),
    (lambda own: [replace(one, advantage=math.nan) for one in own], None, "advantage nan of .*base=0"),
    (None, lambda turns: [[math.inf] * len(one) for one in turns], r"Odd.turn_advantages: \[inf"),
])  # fmt: skip
def test_what_a_method_of_others_returns_is_one_finite_advantage_for_each_member(credit, turns, words):
    """A member without credit would be in no row and no event, and NaN would be in the weights."""

    class Odd(Method):
        credits_turns = turns is not None

        def credit(self, settings, members):
            own = super().credit(settings, members)
            return credit(own) if credit else own

        def turn_advantages(self, settings, group):
            return turns(group.turns)

    episodes = [walked(0, 1.0, "abc"), walked(1, 0.0, "ab")]
    members, rows = [one.trajectory for one in episodes], [turn for one in episodes for turn in one.turns]
    with pytest.raises(ValueError, match=words):
        credit_groups(Odd(), GRPOSettings(), members, rows)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_takes_an_advantage_a_token(name):
    """Equal advantages of all tokens are one of the row; else each token's gradient goes by its own."""
    loss, settings = LOSSES[name].loss, SETTINGS[name]
    together = loss(LOGP, OLD, -2.0, WEIGHTS, **settings)
    apart = loss(LOGP, OLD, torch.full_like(LOGP, -2.0), WEIGHTS, **settings)
    assert together == apart
    logp = LOGP.clone().requires_grad_()
    mixed = loss(logp, logp.detach(), torch.tensor([1.0, -3.0, 5.0, 0.0]), WEIGHTS, **settings)
    slopes = torch.autograd.grad(mixed.value, logp)[0]
    alone = [
        torch.autograd.grad(loss(logp, logp.detach(), advantage, WEIGHTS, **settings).value, logp)[0][token]
        for token, advantage in enumerate((1.0, -3.0, 5.0, 0.0))
    ]
    assert slopes.tolist() == pytest.approx([float(slope) for slope in alone])


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    tables, _ = rehearse(compose(method="gigpo").method)
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(store, tables=tables)
    return store, tables


WON = "iteration=0/task=0/base=1"


def test_views_why_and_panes_show_each_turns_advantage(rehearsed):
    store, tables = rehearsed
    own = next(one.turn_advantages for one in tables["credit"]["credit"] if one.trajectory_id == WON)
    assert own[0] > own[-1] > 0  # its last states are seen by no other walk
    with connect(store) as connection:
        asked = (
            "SELECT turn, own, advantage, weight * tokens * advantage, mass FROM turn_credit "
            f"WHERE trajectory_id = '{WON}'"
        )
        seen = connection.execute(f"{asked} ORDER BY turn").fetchall()
    assert [(turn, is_own) for turn, is_own, *_ in seen] == [(turn, True) for turn in range(5)]
    assert [advantage for _, _, advantage, _, _ in seen] == pytest.approx(own)
    assert [mass for *_, mass in seen] == pytest.approx([product for *_, product, _ in seen], rel=1e-5)
    story = why(store, "demo", WON)
    assert [turn["advantage"] for turn in story.turns] == pytest.approx(own)
    assert "its turns have their own" in str(story)
    reader = Reader(store, ["demo"])
    hit = find(reader, Line("demo"), WON)
    whole = group(reader, Line("demo"), 0, hit.group_id)
    trained = panes(reader, whole, whole.attempt(WON)).trained[WON]
    assert [trained.advantage(turn) for turn in range(5)] == pytest.approx(own)
    assert trained.effect(0) == pytest.approx(own[0] * max(trained.weights[0]))


FORGED = {
    "cut": ("credit", lambda one: replace(one, turn_advantages=one.turn_advantages[:-1]), "8_credit"),
    "nan": ("credit", lambda one: replace(one, turn_advantages=[math.nan, *one.turn_advantages[1:]]), "8_credit"),
    "turned": ("training_rows", lambda one: replace(one, advantages=[-x for x in one.advantages]), "9_row_weights"),
    "gone": ("training_rows", lambda one: replace(one, advantages=None), "9_row_weights"),
}


def test_advantages_that_are_not_the_turns_are_found(tmp_path):
    store = Store.open(str(tmp_path))
    for run, (table, change, _) in FORGED.items():
        tables, _ = rehearse(compose(method="gigpo").method)
        tables[table][table][0] = change(tables[table][table][0])
        commit_iteration(store, run, tables=tables)
    found = broken_rows(store, list(FORGED))
    assert [run for run, (*_, check) in FORGED.items() if check not in {one.check for one in found[run]}] == []


def test_only_methods_that_credit_turns_have_such_advantages():
    assert {name for name, method in METHODS.items() if method.credits_turns} == {
        "gigpo",
        "hgpo",
        "process_supervision",
        "vineppo",
    }


def published_hgpo(returns, states, history, power, scale):
    """The estimate of core_hgpo.py, written out: of a turn, each past of length k that another turn has too gives
    (return - mean) / (deviation with ddof 0 + 1e-6), or without the division; zeros count in no mean."""
    found = {}
    for g, own in enumerate(states):
        for t in range(len(own)):
            items = []
            for k in range(1, min(history + 1, t + 1) + 1):
                past = own[t - k + 1 : t + 1]
                alike = [
                    returns[h][s]
                    for h, other in enumerate(states)
                    for s in range(k - 1, len(other))
                    if other[s - k + 1 : s + 1] == past
                ]
                if len(alike) > 1:
                    divisor = np.std(alike) + 1e-6 if scale == "std" else 1.0
                    items.append((k, (returns[g][t] - np.mean(alike)) / divisor))
            items = [(k, a) for k, a in items if abs(a) > 1e-12]
            total = sum((k + 1) ** power for k, _ in items)
            found[g, t] = sum((k + 1) ** power * a for k, a in items) / total if items else 0.0
    return found


@pytest.mark.parametrize("scale", ["std", "none"])
@pytest.mark.parametrize(("history", "power"), [(2, 1.0), (0, 1.0), (4, 0.0)])
def test_hgpo_agrees_with_its_published_estimate_on_random_walks(scale, history, power):
    rng = np.random.default_rng(history)
    walks = [("".join(rng.choice(list("abc"), rng.integers(1, 9))), float(rng.integers(2))) for _ in range(6)]
    settings = HGPOSettings(scale=scale, history=history, weight_power=power)
    found = credited(settings, [walked(n, reward, seen) for n, (seen, reward) in enumerate(walks)])
    returns = [discounted_returns(at_the_end(len(seen), reward), 0.95) for seen, reward in walks]
    expected = published_hgpo(returns, [seen for seen, _ in walks], history, power, scale)
    for g, one in enumerate(found):
        assert one.turn_advantages == pytest.approx(
            [expected[g, t] for t in range(len(walks[g][0]))], rel=1e-4, abs=1e-9
        )


def test_hgpo_agrees_with_a_calculation_by_hand():
    """Discount 1: every return is the reward. abc won, abd lost, xbd lost. Turn 1: b is in all three (mean 1/3), ab in
    two (mean 1/2); weights 2 and 3."""
    settings = HGPOSettings(scale="none", history=1, discount=1.0)
    one, two, three = credited(settings, [walked(0, 1.0, "abc"), walked(1, 0.0, "abd"), walked(2, 0.0, "xbd")])
    assert one.turn_advantages == pytest.approx([1 / 2, (2 * 2 / 3 + 3 * 1 / 2) / 5, 0.0])
    # d is in two lost walks: 0, and counts in no mean
    assert two.turn_advantages == pytest.approx([-1 / 2, (2 * -1 / 3 + 3 * -1 / 2) / 5, 0.0])
    assert three.turn_advantages == pytest.approx([0.0, -1 / 3, 0.0])

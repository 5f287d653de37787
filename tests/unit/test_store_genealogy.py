"""`why` tells the line of a trajectory: who begot it, what it led to, and the weight of every token."""

import pytest

from r3l.audit.lines import Line
from r3l.audit.terminal import show
from r3l.errors import StoreError
from r3l.store.genealogy import as_line, why
from r3l.store.index import blocks
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

BASE, WON = "iteration=0/task=0/base=0", "iteration=0/task=0/distilled=0"


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_iteration(store)
    return store


def test_a_distilled_trajectory_back_to_its_task_and_forward_to_the_step(store):
    line = why(store, "demo", WON).line
    expected = {
        "task_id": "t0", "environment": "household", "base_id": BASE, "base_reward": 0.0,
        "reflection_id": f"{BASE}/reflection=0", "outcome": "failure",
        "suggestion": "Clean the thing before you place it.", "pivot_turn": 1, "shared_turns": 1,
        "retry_id": "iteration=0/task=0/retry=0", "rule": "top", "advantage": 3.0, "mask_turn": 1,
        "row_id": f"{WON}/row", "role": "explore", "trained_tokens": 4, "weight": 1.0, "step": 1, "parent_policy": "p0",
        "written_policy": "p1", "events": None,
    }  # fmt: skip
    assert {name: line[name] for name in expected} == expected


def test_the_weight_of_every_token(store):
    story = why(store, "demo", WON, turn=1)
    assert [(turn["turn"], turn["weight"], turn["loss_weight"]) for turn in story.turns] == [
        (0, 0.0, 0.0),
        (1, 1.0, 3.0),
        (2, 1.0, 3.0),
    ]
    assert story.tokens == [
        {"token": 0, "id": 51001, "logprob": -0.5, "weight": 1.0},
        {"token": 1, "id": 7, "logprob": -0.25, "weight": 1.0},
    ]


def test_a_retry_is_trained_on_its_own_turns_only(store):
    turns = why(store, "demo", "iteration=0/task=0/retry=0").turns
    assert [(turn["turn"], turn["weight"]) for turn in turns] == [(0, 0.0), (1, 1.0), (2, 1.0)]


def test_a_base_and_what_it_led_to(store):
    story = why(store, "demo", BASE)
    (child,) = story.offspring
    assert (child["retry_id"], child["gain"], child["distilled_id"]) == ("iteration=0/task=0/retry=0", 1.0, WON)
    assert [turn["weight"] for turn in story.turns] == [0.0, 1.0, 1.0]


def test_a_dropped_one_says_why(store):
    story = why(store, "demo", "iteration=0/task=1/distilled=0")
    assert story.line["row_id"] is None
    assert story.line["events"] == "training_rows dropped: all rewards of the group are equal"
    assert [turn["weight"] for turn in story.turns] == [0.0, 0.0, 0.0]


def test_the_story_of_a_trajectory_has_every_step(store):
    assert (
        str(why(store, "demo", WON, turn=2))
        == """\
iteration=0/task=0/distilled=0  distilled of run demo
  task         household/train t0 (look)
  came to      completed, reward 1 after 3 turns, sampled by policy p0
  base         iteration=0/task=0/base=0, reward 0
  reflection   iteration=0/task=0/base=0/reflection=0: failure, asks for turn 1
  guidance     written by the policy itself
               Clean the thing before you place it.
  pivot        1 turns kept of iteration=0/task=0/base=0, 1 shared with the base
  retry        iteration=0/task=0/retry=0, distilled into iteration=0/task=0/distilled=0
  credit       top: advantage +3
  row          iteration=0/task=0/distilled=0/row: policy_gradient as explore, rl term, coefficient 1, by groups; 4 tokens with weight
  step         1: p0 -> p1 in policies/iteration=00000
  arithmetic   A = +0.5774   as it was stored
               Â = +3   rule top, as it was stored
               w = 1   method.loss_normalisation = None; turns before 1 have w = 0: method.pivot_mask = None
               w·Â = 1 × 3 = +3   each trained token is made likelier
               in the loss = coefficient × w·Â / groups = 1 × 3 / 2 = +1.5   coefficient of the rl term: method.loss_factor
    turn   0  go 0                                      no weight
    turn   1  go 1                                      weight 1 x 2 tokens, w·A +3
    turn   2  go 2                                      weight 1 x 2 tokens, w·A +3
      token    0  id   51002  logprob  -0.5000  weight 1
      token    1  id       7  logprob  -0.2500  weight 1"""
    )


def test_what_is_not_there_is_named_with_what_is_near(store):
    with pytest.raises(StoreError, match="the closest are iteration=0/task=0/base=0"):
        why(store, "demo", "iteration=0/task=0/base=00")
    with pytest.raises(StoreError, match="no turn 3; it has 0, 1, 2"):
        why(store, "demo", WON, turn=3)


def test_untrusted_text_can_not_steer_the_terminal():
    assert as_line("go\x1b[2J north\nnow") == "go [2J north now"


def test_of_a_long_run_the_iteration_of_the_attempt_alone_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 1)
    store = Store.open(str(tmp_path))
    for iteration in range(3):
        commit_iteration(store, iteration=iteration)
    read: list[str] = []
    whole = blocks.indexed_block
    monkeypatch.setattr(blocks, "indexed_block", lambda s, r, b, *rest: read.append(b.name) or whole(s, r, b, *rest))
    id_ = WON.replace("iteration=0", "iteration=1")
    assert why(store, "demo", id_).line["iteration"] == 1
    show(store, id_)
    show(store, id_, Line("demo"))
    assert set(read) == {"1"}
    with pytest.raises(StoreError, match="iteration=9/task=0/base=0: not in run demo; the closest are iteration="):
        why(store, "demo", BASE.replace("iteration=0", "iteration=9"))
    with pytest.raises(StoreError, match="no trajectory or reflection of demo has this id"):
        show(store, "iteration=9/task=0/base=0", Line("demo"))

"""Oracle pivots as a stage: who is judged, by which oracle, and what becomes of an oracle that fails."""

import json

import pytest

from r3l.config.environments import AlfworldSettings, HouseholdSettings, WebShopSettings
from r3l.environments.base import Verdict
from r3l.environments.household.oracle import oracle_pivot
from r3l.environments.household.world import HouseholdWorld
from r3l.environments.kinds import has_oracle, verdict_of
from r3l.environments.workers.pool import WorldPool
from r3l.errors import WorldError
from r3l.exploration.oracle import oracle_stage
from r3l.exploration.stages import base_stage
from r3l.records import OraclePivot, SamplingPlan, Task
from tests.support.fakes import CorridorPool, explorer, failed
from tests.support.records import corridor_task as task

LOSING = {0: ["!right"] * 5, 1: ["!right", "!trap", *["!right"] * 6], 2: ["!left"] * 8}  # wins; lost in turn 1; slow


def walk(name: str, prompt: str) -> str:
    base, turn = (int(part.split("=")[1]) for part in name.split("/")[2:4])
    return LOSING[base][turn]


def test_the_failed_bases_are_judged_and_the_won_one_is_not():
    walker = explorer(walk)
    bases = base_stage(walker, [task(slot=3)], SamplingPlan(3))
    pivots, events = oracle_stage(walker, [task(slot=3)], bases)
    at = "iteration=0/task=3"
    assert pivots == [
        OraclePivot(f"{at}/base=1", 0, 3, at, 1, "lost"),
        OraclePivot(f"{at}/base=2", 0, 3, at, 7, "slow"),
    ]
    assert events == []


def test_a_failed_oracle_is_a_row_without_a_pivot_and_an_event():
    class Broken(CorridorPool):
        def ask_oracle(self, name, task, actions, observations):
            return failed(WorldError("no Java"))

    walker = explorer(walk, Broken())
    pivots, events = oracle_stage(walker, [task()], base_stage(walker, [task()], SamplingPlan(3)))
    assert [(one.pivot_turn, one.why) for one in pivots] == [(None, "no verdict")] * 2
    assert [(event.event, event.reason) for event in events] == [("dropped", "no verdict: no Java")] * 2


def test_the_household_oracle_in_a_worker_process_is_the_one_here():
    settings = HouseholdSettings(level="easy", train_tasks=2)
    with WorldPool(settings, workers=1) as pool:
        for one in HouseholdWorld(settings).tasks("train"):
            actions = ["look", "", "go to countertop 1", "look"]
            found = pool.ask_oracle("iteration=0/task=0/base=0/oracle", one, actions, [""] * 5).result(60)
            here = oracle_pivot(one, actions)
            assert (found.pivot, found.why) == (here.pivot, here.why)
            assert bool(found.cause) == bool(found.advice) == (found.pivot is not None)  # in words, too
        assert pool.homes == {}  # no session is left of it


def alfworld(tmp_path, task_type: str, **params: object) -> tuple[AlfworldSettings, Task]:
    """A game's description alone: the oracle needs no more of it."""
    settings = AlfworldSettings(data_root=str(tmp_path), games="downloaded")
    folder = tmp_path / "alfworld" / "json_2.1.1" / "train" / "g" / "trial"
    folder.mkdir(parents=True)
    about = {"object_target": "Mug", "parent_target": "Shelf", **params}
    (folder / "traj_data.json").write_text(json.dumps({"task_type": task_type, "pddl_params": about}))
    from r3l.environments.alfworld.game_files import games_root

    payload = {"game": (folder / "game.tw-pddl").relative_to(games_root(settings)).as_posix()}
    return settings, Task(0, 0, "alfworld/train/g", "alfworld", "train", task_type, json.dumps(payload), 0)


SAW = [
    "You are in a room. Your task is to: heat some mug.",
    "On the shelf 1, you see a cup 1.",
    "On the desk 1, you see a mug 2, and a pen 1.",
    "You pick up the mug 2 from the desk 1.",
    "You arrive at shelf 1.",
    "You move the mug 2 to the shelf 1.",
]
DID = ["go to shelf 1", "go to desk 1", "take mug 2 from desk 1", "go to shelf 1", "move mug 2 to shelf 1"]


def test_alfworld_an_unheated_object_is_retried_from_the_turn_after_it_was_taken(tmp_path):
    """It was taken in turn 2: turn 3 should have gone to the microwave."""
    settings, about = alfworld(tmp_path, "pick_heat_then_place_in_recep")
    opening = SAW[0].replace("Your task", "You see a desk 1, a microwave 1, and a shelf 1. Your task")
    assert verdict_of(settings, about, DID, [opening, *SAW[1:]]).pivot == 3


def test_alfworld_an_object_left_lying_is_retried_from_the_turn_after_it_was_seen(tmp_path):
    """It was in sight after turn 1: turn 2 should have taken it."""
    settings, about = alfworld(tmp_path, "pick_and_place_simple")
    assert (
        verdict_of(
            settings, about, [*DID[:2], "look", ""], [*SAW[:3], "You see nothing.", "Answer with an action."]
        ).pivot
        == 2
    )


@pytest.mark.parametrize(("task_type", "params"), [
    ("look_at_obj_in_light", {}),
    ("pick_two_obj_and_place", {}),
    ("pick_heat_then_place_in_recep", {"object_sliced": True}),
])  # fmt: skip
def test_alfworld_an_unknown_errand_has_no_verdict(tmp_path, task_type, params):
    settings, about = alfworld(tmp_path, task_type, **params)
    assert verdict_of(settings, about, DID, SAW) == Verdict(None, "unknown errand")


def test_a_world_without_an_oracle_says_so():
    assert not has_oracle(WebShopSettings())
    with pytest.raises(
        WorldError, match="'webshop' has no oracle; those that have one: alfworld, household, scienceworld"
    ):
        verdict_of(WebShopSettings(), task(), [], [""])

"""R3L's exploration on the household world in real worker processes: a late, unrecoverable error, a retry from it, a
win."""

import json

from r3l.config.environments import HouseholdSettings
from r3l.environments.household.engine import engine_of
from r3l.environments.household.oracle import Verdict, oracle_pivot
from r3l.environments.household.solver import solve
from r3l.environments.household.world import HouseholdWorld
from r3l.environments.workers.pool import WorldPool
from r3l.exploration.explorer import Explorer, Limits
from r3l.exploration.stages import base_stage, distilled_stage, reflections_stage, retries_stage
from r3l.records import SamplingPlan
from tests.support.fakes import CharChat, ScriptedEngine

SETTINGS = HouseholdSettings(level="long", train_tasks=3, max_turns=32)
PLAN = SamplingPlan(bases=1, reflection="report", retries_per_base=1, retry_when="not_success")


def reply(action: str) -> str:
    return f"<think>next</think><action>{action}</action>"


def test_a_retry_from_the_oracles_pivot_wins_what_the_base_had_lost_for_good():
    world = HouseholdWorld(SETTINGS)
    task = world.tasks("train")[2]
    plan = solve(engine_of(task.payload))
    last_take = max(k for k, action in enumerate(plan) if action.startswith("take"))
    thing = " ".join(plan[last_take].split()[1:3])
    spoiled = [*plan[: last_take + 1], "go to garbagecan 1", f"move {thing} to garbagecan 1", *["look"] * 32][:32]
    verdict = oracle_pivot(task, spoiled)
    assert verdict == Verdict(last_take + 2, "lost")
    report = {
        "trajectory_summary": "thrown away",
        "root_cause_analysis": "garbage",
        "trajectory_outcome": "failure",
        "improvement_suggestion": "Keep it.",
        "retry_from_step": verdict.pivot,
    }

    def script(request: str, prompt: str) -> str:
        if "reflection" in request:
            return json.dumps(report)
        turn = int(request.rsplit("turn=", 1)[1])
        return reply((["look", *plan[last_take + 1 :]][turn - verdict.pivot]) if "retry" in request else spoiled[turn])

    with WorldPool(SETTINGS, workers=1) as pool:
        explorer = Explorer(world, pool, ScriptedEngine(script), CharChat(), "p", Limits(SETTINGS.max_turns, 512, 1.0))
        bases = base_stage(explorer, [task], PLAN)
        reflections = reflections_stage(explorer, [task], PLAN, bases, bases, 0)
        retries = retries_stage(explorer, [task], PLAN, bases, bases, reflections)
        distilled, events = distilled_stage(bases, retries)
    (base,), (stitched,) = bases, distilled
    assert (base.trajectory.status, base.trajectory.reward, base.trajectory.turns) == ("turn_limit", 0.0, 32)
    assert events == []
    assert (stitched.trajectory.pivot_turn, stitched.trajectory.reward) == (verdict.pivot, 1.0)
    assert [turn.observation_hash for turn in stitched.turns[: verdict.pivot]] == [
        turn.observation_hash for turn in base.turns[: verdict.pivot]
    ]
    assert stitched.turns[-1].action == plan[-1]
    assert oracle_pivot(task, [turn.action for turn in stitched.turns]).why == "won"

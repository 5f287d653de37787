"""Attempts at a problem as turns: bases, a reflection, a retry that keeps the first attempt, and no gold answer in any
of it."""

import json

from r3l.config.environments import MathSettings
from r3l.environments.math.leaks import gold_leaks
from r3l.environments.math.world import MathWorld
from r3l.environments.workers.pool import WorldPool
from r3l.exploration.explorer import Explorer, Limits
from r3l.exploration.stages import base_stage, distilled_stage, reflections_stage, retries_stage
from r3l.records import SamplingPlan, Task
from tests.support.fakes import CharChat, ScriptedEngine

SETTINGS = MathSettings(dataset="gsm8k", workers=1)
PLAN = SamplingPlan(bases=2, reflection="report", retries_per_base=1, retry_when="not_success")
QUESTION = "What is eight times nine, less five?"
TASK = Task(
    0, 0, "math/x", "math", "train", "sums",
    json.dumps({"name": "x", "question": QUESTION, "gold": "67", "task_type": "sums"}), 3,
)  # fmt: skip
REPORT = {
    "trajectory_summary": "three tries",
    "root_cause_analysis": "the five was added",
    "trajectory_outcome": "failure",
    "improvement_suggestion": "Take the five away.",
    "retry_from_step": 1,
}


def script(request: str, prompt: str) -> str:
    if "reflection" in request:
        return json.dumps(
            REPORT if "base=0" in request else {**REPORT, "trajectory_outcome": "success", "retry_from_step": 0}
        )
    if "retry" in request:
        return "<think>take it away</think><answer>67</answer>"
    wrong = {"0": "77", "1": "no tags", "2": "72"}[request[-1]]
    answer = "67" if "base=1" in request else wrong
    return answer if answer == "no tags" else f"<think>well</think><answer>{answer}</answer>"


def test_a_reflector_that_works_out_the_answer_guides_no_retry():
    """The policy was never told 67, and neither is the one that tries again."""
    telling = json.dumps({**REPORT, "improvement_suggestion": "Take the five away: it is 67."})
    with WorldPool(SETTINGS) as pool:
        engine = ScriptedEngine(lambda request, prompt: telling if "reflection" in request else script(request, prompt))
        explorer = Explorer(MathWorld(SETTINGS), pool, engine, CharChat(), "p", Limits(SETTINGS.max_turns, 4096, 1.0))
        bases = base_stage(explorer, [TASK], PLAN)
        reflections = reflections_stage(explorer, [TASK], PLAN, bases, bases, 0)
        assert retries_stage(explorer, [TASK], PLAN, bases, bases, reflections) == []
    assert (reflections[0].status, reflections[0].decision) == ("parsed", "no retry: the report tells the answer")
    turns = [turn for one in bases for turn in one.turns]
    assert gold_leaks([TASK], [one.trajectory for one in bases], turns, reflections) == []


def test_attempts_are_turns_and_a_retry_keeps_the_first_ones():
    with WorldPool(SETTINGS) as pool:
        engine = ScriptedEngine(script)
        explorer = Explorer(MathWorld(SETTINGS), pool, engine, CharChat(), "p", Limits(SETTINGS.max_turns, 4096, 1.0))
        bases = base_stage(explorer, [TASK], PLAN)
        reflections = reflections_stage(explorer, [TASK], PLAN, bases, bases, 0)
        retries = retries_stage(explorer, [TASK], PLAN, bases, bases, reflections)
        (stitched,), _ = distilled_stage(bases, retries)
    lost, won = (base.trajectory for base in bases)
    assert (lost.status, lost.reward, lost.turns) == (
        "turn_limit",
        0.0,
        3,
    )  # a malformed reply is a turn, not an attempt
    assert (won.status, won.reward, won.turns, won.success) == ("completed", 1.0, 1, True)
    assert (stitched.trajectory.pivot_turn, stitched.trajectory.reward, stitched.trajectory.turns) == (1, 1.0, 2)
    assert [turn.action for turn in stitched.turns] == ["77", "67"]
    assert (
        stitched.turns[1].observation
        == "Your answer is not correct. Find the mistake in your reasoning and answer again."
    )
    episodes = [*bases, *retries, stitched]
    turns = [turn for one in episodes for turn in one.turns]
    assert gold_leaks([TASK], [one.trajectory for one in episodes], turns, reflections) == []
    assert not any("67" in prompt.split("<answer>67")[0] for _, prompt, _ in engine.requests)

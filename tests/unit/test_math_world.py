"""Mathematics: attempts with feedback, rollback of attempts, both formats, in this process and in worker processes."""

import json
import os
import subprocess
import sys
import zlib
from dataclasses import replace

import psutil
import pytest

from r3l.config.environments import MathSettings
from r3l.environments.base import Step
from r3l.environments.math.grader import AT_ONCE
from r3l.environments.math.leaks import holds
from r3l.environments.math.world import MathWorld
from r3l.environments.workers.pool import WorldPool
from r3l.errors import WorldError
from r3l.records import Task

SETTINGS = MathSettings(train_tasks=12, heldout_tasks=8)
VERIFIED = MathSettings(dataset="gsm8k")


def problem(gold: str = "\\frac{1}{2}") -> Task:
    payload = {"name": "x", "question": "What is a half?", "gold": gold, "task_type": "fractions"}
    return Task(0, 0, "math/x", "math", "train", "fractions", json.dumps(payload), 0)


def played(env, answers: list[str]) -> list[Step]:
    return [env.step(answer) for answer in answers]


def test_an_attempt_that_is_right_wins_and_wrong_ones_are_told_so():
    env = MathWorld(VERIFIED).make()
    assert env.reset(problem()).text == "What is a half?"
    steps = played(env, ["2", "", "0.5"])
    assert [(step.done, step.reward, step.success, step.accepted) for step in steps] == [
        (False, 0.0, False, True),
        (False, 0.0, False, False),
        (True, 1.0, True, True),
    ]
    assert [step.observation.text for step in steps] == [
        "Your answer is not correct. Find the mistake in your reasoning and answer again.",
        "Your answer could not be read as mathematics, so it counts as not correct. "
        "Find the mistake in your reasoning and answer again.",
        "Your answer is correct.",
    ]


def test_three_wrong_attempts_lose():
    env = MathWorld(VERIFIED).make()
    env.reset(problem())
    steps = played(env, ["2", "3", "4"])
    assert [(step.done, step.reward, step.success) for step in steps] == [(False, 0.0, False)] * 2 + [
        (True, 0.0, False)
    ]
    assert steps[-1].observation.text == "Your answer is not correct. No attempt is left."


def test_a_hostile_attempt_is_a_wrong_one():
    env = MathWorld(MathSettings(dataset="gsm8k", grade_timeout_s=1)).make()
    env.reset(problem())
    step = env.step("9999999999!")
    assert (step.done, step.accepted) == (False, False)
    assert step.observation.text.startswith("Your answer could not be checked in time, so it counts as not correct.")


def test_rollback_keeps_the_first_attempts():
    env, other = MathWorld(VERIFIED).make(), MathWorld(VERIFIED).make()
    env.reset(problem())
    other.reset(problem())
    answers, handles, steps = ["2", "3", "1/2"], [], []
    for answer in answers:
        handles.append(env.snapshot())
        steps.append(env.step(answer))
    for turn in (2, 1, 0):
        other.restore(handles[turn])
        assert played(other, answers[turn:]) == steps[turn:]
    with pytest.raises(WorldError, match="needs a handle"):
        env.restore("x")


def test_attempts_and_rollbacks_through_a_worker_process():
    with WorldPool(VERIFIED, workers=1) as pool:
        opening = pool.start("base", problem()).result(120).text
        texts = [opening] + [pool.step("base", answer).result(120).observation.text for answer in ("2", "3", "4")]
        rolled = pool.rollback(
            "retry", problem(), ["2", "", "3"], [opening, texts[1], "Invalid reply.", texts[2]]
        ).result(120)
        assert (rolled.diverged_at, rolled.exact) == (None, True)
        last = pool.step("retry", "0.5").result(120)
        assert (last.done, last.reward, last.observation.text) == (True, 1.0, "Your answer is correct.")


def test_a_killed_worker_leaves_no_grader_behind_even_in_the_middle_of_a_hostile_answer():
    with WorldPool(VERIFIED, workers=1) as pool:
        pool.start("base", problem()).result(120)
        assert pool.step("base", "2").result(120).accepted
        graders = psutil.Process(pool.workers[0].process.pid).children()
        hostile = pool.step("base", "9999999999!")
        pool.workers[0].process.kill()
        with pytest.raises(WorldError):
            hostile.result(120)
        assert len(graders) == AT_ONCE
        for grader in graders:
            assert grader.wait(30) is None or not grader.is_running()


def test_an_ordinary_answer_does_not_wait_behind_a_hostile_one():
    """In one worker, while the hostile answer has four seconds of processor time before it."""
    settings = VERIFIED.model_copy(update={"grade_timeout_s": 4})
    other = next(
        one for one in (replace(problem(), task_id=f"math/other/{k}") for k in range(9)) if lane(one) != lane(problem())
    )
    with WorldPool(settings, workers=1) as pool:
        for session, task in (("hostile", problem()), ("ordinary", other)):
            pool.start(session, task).result(120)
            pool.step(session, "2").result(120)  # starts a grader
        hostile = pool.step("hostile", "9999999999!")
        assert pool.step("ordinary", "0.5").result(120).success
        assert not hostile.done()
        assert hostile.result(120).accepted is False


def lane(task) -> int:
    return zlib.crc32(task.task_id.encode()) % MathWorld.tasks_at_once


def test_the_gold_answer_of_a_procedural_task_solves_it_and_is_in_nothing_that_is_said():
    world = MathWorld(SETTINGS)
    env = world.make()
    for task in world.tasks("train"):
        payload = json.loads(task.payload)
        assert env.reset(task).text == payload["question"]
        wrong, right = env.step("-987654321"), env.step(payload["gold"])
        assert (wrong.reward, right.reward, right.success) == (0.0, 1.0, True)
        assert not any(holds(payload["gold"], step.observation.text) for step in (wrong, right))
    assert {task.task_type for task in world.tasks("train")} == {"chain_sum", "simple_equations", "gcd", "gsm_symbolic"}


def test_procedural_splits_share_no_question_and_follow_from_the_seed():
    def questions(split: str, **more) -> list[str]:
        tasks = MathWorld(MathSettings(train_tasks=200, heldout_tasks=100, **more)).tasks(split)
        return [json.loads(task.payload)["question"] for task in tasks]

    train, heldout = questions("train"), questions("heldout")
    assert (len(set(train)), len(set(heldout))) == (200, 100)
    assert not set(train) & set(heldout)
    assert questions("train", tasks_seed=1) != train


def test_procedural_tasks_are_the_same_in_every_process():
    code = (
        "from r3l.config.environments import MathSettings as S; from r3l.environments.math.world import MathWorld as W;"
        "print([task.payload for task in W(S(train_tasks=12)).tasks('train')])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONWARNINGS": "ignore"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.strip() == str([task.payload for task in MathWorld(SETTINGS).tasks("train")])


@pytest.mark.parametrize(("settings", "split", "message"), [
    ({"kinds": "no_such_kind"}, "train", "kind 'no_such_kind' is not offered; expected some of base_conversion"),
    ({"kinds": "gcd,polynomial_multiplication"}, "train", "kind 'polynomial_multiplication' is not offered"),
    ({"kinds": " , "}, "train", "no kinds"),
    ({}, "valid", "no split 'valid'"),
])  # fmt: skip
def test_settings_that_give_no_tasks_say_why(settings, split, message):
    with pytest.raises(WorldError, match=message):
        MathWorld(MathSettings(**settings)).tasks(split)


def test_a_kind_with_too_few_questions_says_how_many(monkeypatch):
    monkeypatch.setattr("r3l.environments.math.procedural.TRIES", 1)
    with pytest.raises(
        WorldError, match=r"20 heldout questions asked of each kind, too few in gcd \(\d\): ask for fewer"
    ):
        MathWorld(MathSettings(kinds="gcd", heldout_tasks=20)).tasks("heldout")


def test_prompts_and_parsers_follow_the_format():
    boxed = MathWorld(MathSettings(answer_format="boxed"))
    assert "<answer>" in MathWorld(SETTINGS).system_prompt()
    assert "\\boxed{}" in boxed.system_prompt()
    assert "<answer>" not in boxed.system_prompt()
    assert boxed.parse_reply("so \\boxed{4}").action == "4"
    assert MathWorld(SETTINGS).parse_reply("<think>a</think><answer>4</answer>").action == "4"


def test_a_payload_that_is_no_problem_is_a_world_error():
    for payload in ("{}", "no json", "[1]"):
        with pytest.raises(WorldError, match="not a math problem"):
            MathWorld(SETTINGS).make().reset(Task(0, 0, "x", "math", "train", "t", payload, 0))


def test_an_unreadable_gold_answer_is_said_at_load_and_held_to_its_text(tmp_path, caplog):
    golds = ["1,2,\\ldots,10", "Monday", "\\frac{1}{2}", "7"]
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"question": f"q{g}", "answer": g}) for g in golds))
    world = MathWorld(MathSettings(dataset=str(tmp_path / "p.jsonl")))
    tasks = world.tasks("all")
    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith(
        "p.jsonl, all: 1 of 4 gold answers can't be read as mathematics, so only the same text is correct: "
        "00000 ('1,2,\\\\ldots,10')"
    )
    env = world.make()
    env.reset(tasks[0])
    steps = played(env, ["55", "1,2, ...", "1,2,\\ldots,10"])
    assert [(step.reward, step.success) for step in steps] == [(0.0, False), (0.0, False), (1.0, True)]
    assert (
        steps[0].observation.text == "Your answer is not correct. Find the mistake in your reasoning and answer again."
    )

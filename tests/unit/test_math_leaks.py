"""The check that no stored text shown to the policy holds the gold answer finds planted leaks, and only those."""

import json
from dataclasses import replace

import pytest

from r3l.environments.math.leaks import gold_leaks, holds, reveals
from r3l.records import Reflection, Task, Trajectory, Turn

QUESTION = "Seven times six plus 3?"
TASK = Task(0, 0, "math/x", "math", "train", "t", json.dumps({"question": QUESTION, "gold": "45"}), 0)
BASE = Trajectory(
    "b", "base", 0, 0, "math/x", "t", "g", 0, "completed", "", 0.0, False, 2, 9, "Your answer is not correct.", "p", 0,
    0.0,
)  # fmt: skip


def turn(number: int, observation: str, response: str, valid: bool = True) -> Turn:
    return Turn("b", 0, number, observation, [], [], [], response, response, valid, "stop", "")


TURNS = [turn(0, QUESTION, "42"), turn(1, "Your answer is not correct.", "40")]
REFLECTION = Reflection(
    "r", "b", "b", 0, 0, "g", 0, "parsed", "", "", '{"root_cause_analysis": "forgot to add 3"}', "failure", 0, 0,
    "retry", [], [], [], "stop", "p", 0, 0.0,
)  # fmt: skip


@pytest.mark.parametrize(("gold", "text", "there"), [
    ("12", "it is 12.", True), ("12", "12", True), ("12", "(12)", True), ("12", "112", False),
    ("12", "1.12", False), ("12", "12.5", False), ("12", "1,12", False), ("12", "12,000", False),
    ("12", "x12", False), ("\\frac{1}{2}", "so \\frac{1}{2}!", True), ("p - q", "p-q", True),
    ("p - q", "p + q", False), ("", "anything", False), ("27", "2027", False), ("7", "7", True),
    ("7", "so it is 7.", True), ("7", "The answer should be 7!", True), ("7", "x = 7", True),
    ("7", "x = 17", False), ("7", "In turn 7 the sign was lost.", False), ("7", "the answer is 17", False),
    ("7", "Recheck step 7.", False),
])  # fmt: skip
def test_a_gold_answer_is_found_as_a_whole_word_or_number(gold, text, there):
    assert holds(gold, text) is there


@pytest.mark.parametrize("report", ["[" * 100_000, "9" * 5_000, '{"a": "\\ud800"}'])
def test_a_report_that_no_reader_of_json_takes_is_one_text(report):
    assert not reveals({"question": QUESTION, "gold": "45"}, report, [])
    assert reveals({"question": QUESTION, "gold": "45"}, f"{report} so it is 45", [])


def test_rows_without_a_leak_have_no_finding():
    assert gold_leaks([TASK], [BASE], TURNS, [REFLECTION]) == []


@pytest.mark.parametrize(("turns", "base", "where", "subject"), [
    ([replace(TURNS[0], observation=f"{QUESTION} (It is 45.)"), TURNS[1]], BASE, "opening", "b/turn=0"),
    ([TURNS[0], replace(TURNS[1], observation="Not 42 but 45.")], BASE, "feedback", "b/turn=0"),
    (TURNS, replace(BASE, final_observation="The answer was 45."), "feedback", "b/turn=1"),
])  # fmt: skip
def test_a_leak_in_what_the_world_says_is_found(turns, base, where, subject):
    (leak,) = gold_leaks([TASK], [base], turns)
    assert (leak.where, leak.subject_id, leak.gold) == (where, subject, "45")


def test_a_leak_in_guidance_is_found_unless_the_policy_said_it_itself():
    leaking = replace(REFLECTION, report='{"improvement_suggestion": "answer 45"}')
    (leak,) = gold_leaks([TASK], [BASE], TURNS, [leaking])
    assert (leak.where, leak.subject_id) == ("guidance", "r")
    assert gold_leaks([TASK], [BASE], [TURNS[0], replace(TURNS[1], response="perhaps 45, no: 40")], [leaking]) == []


@pytest.mark.parametrize("report", [
    '{"improvement_suggestion": "Add 3.", "retry_from_step": 45}',  # a number of turns
    '{"improvement_suggestion": "Add 3.", "notes": [{"at": "turn 44"}]}',
    "not JSON, and no number",
])  # fmt: skip
def test_guidance_without_the_answer_in_its_words(report):
    assert gold_leaks([TASK], [BASE], TURNS, [replace(REFLECTION, report=report)]) == []


@pytest.mark.parametrize("report", ['{"notes": [{"deep": "it is 45"}]}', "Prose of a critique: it is 45."])
def test_guidance_with_the_answer_somewhere_in_its_words(report):
    leaking = replace(REFLECTION, report=report)
    assert [leak.where for leak in gold_leaks([TASK], [BASE], TURNS, [leaking])] == ["guidance"]
    assert (
        gold_leaks([TASK], [BASE], TURNS, [replace(leaking, decision="no retry: outcome success")]) == []
    )  # it guided nothing


def test_what_is_said_about_a_malformed_reply_and_other_worlds_are_let_pass():
    cut_off = [replace(TURNS[0], valid=False), replace(TURNS[1], observation="Your reply was cut off after 45 tokens.")]
    assert gold_leaks([TASK], [BASE], cut_off) == []
    assert (
        gold_leaks([replace(TASK, environment="alfworld", payload="{}")], [BASE], [replace(TURNS[1], observation="45")])
        == []
    )

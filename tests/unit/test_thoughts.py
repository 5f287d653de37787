"""What a reply says after its thought: actions, answers, boxes, calls and reports are read there, by one function."""

import json

import pytest

from r3l.environments.math.problems import last_box, parse_answer_reply, parse_boxed_reply
from r3l.environments.replies import after_thought, parse_tagged_reply
from r3l.environments.tools.calls import parse_calls
from r3l.exploration.report import parse_report
from tests.support.records import report

CALL = '<tool_call>{"name": "find", "arguments": {}}</tool_call>'
OTHER = '<tool_call>{"name": "lose", "arguments": {}}</tool_call>'
NAMES = ("find", "lose")


@pytest.mark.parametrize(("text", "rest"), [
    ("a", "a"), ("<think>a</think>b", "b"), ("<think>a</think>b<think>c</think>d", "d"), ("a</think>b", "b"),
    ("<think>a</think>b<think>c", "b"), ("<think>a", ""), ("", ""),
])  # fmt: skip
def test_what_stands_after_the_last_thought(text, rest):
    assert after_thought(text) == rest


@pytest.mark.parametrize(("text", "action"), [
    ("<think>try <action>look</action></think><action>go</action>", "go"),
    ("<think>own thought</think>\n<think>the asked one</think><action>go</action>", "go"),
    ("<think>\n<think>twice opened</think><action>go</action>", "go"),
    ("<think>a</think>thought on</think><action>go</action>", "go"),
    ("<think>a</think><action>go</action><think>b</think><action>look</action>", ""),
    ("<action>go</action><think>a</think><action>look</action>", ""),
    ("<think>a</think><action>go</action><think>b", ""),
    ("<think><action>go</action>", ""),
])  # fmt: skip
def test_an_action_is_that_after_the_thought(text, action):
    assert parse_tagged_reply(text).action == action
    answered = parse_answer_reply(text.replace("action>", "answer>"))
    assert (answered.action, answered.valid) == (action, bool(action))


def test_boxes_calls_and_reports_of_a_thought_count_for_nothing():
    assert parse_boxed_reply("<think>\\boxed{1}</think> so \\boxed{2}").action == "2"
    assert not parse_boxed_reply("<think>\\boxed{1}</think> so").valid
    assert not parse_boxed_reply("<think>\\boxed{1}").valid
    assert json.loads(parse_calls(f"<think>{OTHER}</think>{CALL}", NAMES).action)["calls"][0]["name"] == "find"
    assert not parse_calls(f"<think>{OTHER}", NAMES).valid
    assert parse_report(f"<think>{report(1)} or {{</think>{report(2)}", 3).pivot == 2


@pytest.mark.parametrize(("text", "content"), [
    ("\\boxed{7} then \\boxed{}", "7"),
    ("\\boxed{7} then \\boxed{ }", "7"),
    ("\\boxed{} then \\boxed{7}", "7"),
    ("\\boxed{7}, \\boxed{8}, \\boxed{}", "8"),
    ("\\boxed{}", ""),
    ("7", None),
])  # fmt: skip
def test_the_last_box_that_holds_something_counts(text, content):
    box = last_box(text)
    assert (box and text[slice(*box)]) == content

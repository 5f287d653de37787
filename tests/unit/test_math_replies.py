"""Replies of mathematics in both formats."""

from collections import Counter

import pytest

from r3l.environments.math import problems
from r3l.environments.math.problems import last_box, parse_answer_reply, parse_boxed_reply


@pytest.mark.parametrize(("text", "answer"), [
    ("<think>2+2</think><answer>4</answer>", "4"),
    ("Well. <think>a\nb</think>\n\n<answer>\n \\frac{1}{2} \n</answer> So.", "\\frac{1}{2}"),
    ("<think>maybe \\boxed{9}</think><answer>\\boxed{4}</answer>", "4"),
    ("<think></think><answer>x</answer>", "x"),
])  # fmt: skip
def test_the_text_inside_answer_is_the_action(text, answer):
    reply = parse_answer_reply(text)
    assert (reply.valid, reply.action, reply.error) == (True, answer, "")


@pytest.mark.parametrize(("text", "reason"), [
    ("4", "no <think> tags"),
    ("<think>a</think> 4", "no <answer> tags"),
    ("<answer>4</answer>", "no <think> tags"),
    ("<think>a</think><answer>4</answer><answer>5</answer>", "several <answer> tags"),
    ("<think>a</think><answer>4", "</answer> must close <answer> once"),
    ("<think>a<answer>4</answer>", "</think> must close <think> once"),
    ("<answer>4</answer><think>a</think>", "the tags are not in order"),
    ("<think>a</think><answer>  </answer>", "<answer> is empty"),
    ("", "no <think> tags"),
])  # fmt: skip
def test_anything_else_is_invalid_and_says_why_without_a_digit(text, reason):
    reply = parse_answer_reply(text)
    assert not reply.valid
    assert reply.action == ""
    assert reply.error.startswith(f"Invalid reply: {reason}.")
    assert not any(character.isdigit() for character in reply.error)


@pytest.mark.parametrize(("text", "answer"), [
    ("so \\boxed{7}", "7"),
    ("first \\boxed{1}, then \\boxed{ \\frac{1}{2} }.", "\\frac{1}{2}"),
    ("\\boxed{\\left\\{1,2\\right\\}}", "\\left\\{1,2\\right\\}"),
    ("\\boxed{5} and \\boxed{6", "5"),
    ("\\fbox {3}", "3"),
    ("\\boxed{\\boxed{8}}", "8"),
    ("} \\boxed{1} {", "1"),
    ("\\boxed{\\boxed{8} and \\boxed{9", "8"),
])  # fmt: skip
def test_the_last_balanced_box_is_the_action(text, answer):
    assert parse_boxed_reply(text).action == answer == text[slice(*last_box(text))]


@pytest.mark.parametrize("text", ["7", "\\boxed", "\\boxed{", "boxed{3}", "\\boxed{}", "\\boxed{\\}"])
def test_no_box_is_invalid(text):
    reply = parse_boxed_reply(text)
    assert not reply.valid
    assert reply.error.endswith("Expected the final answer within \\boxed{}.")


def test_a_reply_of_unclosed_boxes_is_read_in_one_pass(monkeypatch):
    """Each box and each brace is looked at once; from each of 1,000 boxes to the end would be 500,000 times."""
    looked = Counter[str]()

    class Counted:
        def __init__(self, pattern):
            self.pattern = pattern

        def finditer(self, *where):
            for match in self.pattern.finditer(*where):
                looked[self.pattern.pattern] += 1
                yield match

    for name in ("BOX", "BRACE"):
        monkeypatch.setattr(problems, name, Counted(getattr(problems, name)))
    text = "\\boxed{" * 1_000
    assert last_box(text) is None
    assert sorted(looked.values()) == [1_000, 2_000]  # the boxes; the braces and backslashes
    assert last_box(f"{text}7}}") == (len(text), len(text) + 1)

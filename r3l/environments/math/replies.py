"""Replies of mathematics: <think>...</think><answer>...</answer>, or a last \\boxed{...}."""

from __future__ import annotations

import re

from r3l.environments.base import Reply

TAGS = re.compile(r"<think>(?P<thought>.*?)</think>\s*<answer>(?P<answer>.*?)</answer>", re.DOTALL)
BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
EXPECTED = "Expected exactly one <think>...</think> followed by exactly one <answer>...</answer>."
EXPECTED_BOX = "Expected the final answer within \\boxed{}."


def parse_answer_reply(text: str) -> Reply:
    """Return the text inside <answer>, stripped; both tags once each and in that order. Anything else is invalid and
    says why."""
    for tag in ("think", "answer"):
        if (count := text.count(f"<{tag}>")) != 1:
            return invalid(f"{'several' if count else 'no'} <{tag}> tags", EXPECTED)
        if text.count(f"</{tag}>") != 1:
            return invalid(f"</{tag}> must close <{tag}> once", EXPECTED)
    match = TAGS.search(text)
    if not match:
        return invalid("the tags are not in order", EXPECTED)
    answer = match["answer"].strip()
    return Reply(valid=True, action=last_box(answer) or answer) if answer else invalid("<answer> is empty", EXPECTED)


def parse_boxed_reply(text: str) -> Reply:
    """Return what the last \boxed{...} holds."""
    answer = last_box(text)
    if answer is None:
        return invalid("no \\boxed{} with balanced braces", EXPECTED_BOX)
    return Reply(valid=True, action=answer) if answer else invalid("\\boxed{} is empty", EXPECTED_BOX)


def last_box(text: str) -> str | None:
    """Return the content of the last \boxed{...} whose braces balance, stripped; None if there is none. It takes one
    pass over the text."""
    boxes = {match.end() for match in BOX.finditer(text)}
    opened: list[int] = []
    begin, end = -1, -1
    for brace in BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.end())
        elif brace[0] == "}" and opened and (start := opened.pop()) in boxes and start > begin:
            begin, end = start, brace.start()
    return None if begin < 0 else text[begin:end].strip()


def invalid(reason: str, expected: str) -> Reply:
    return Reply(valid=False, action="", error=f"Invalid reply: {reason}. {expected}")

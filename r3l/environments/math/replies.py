"""Replies of mathematics: <think>...</think><answer>...</answer>, or a last \\boxed{...}."""

import re
from dataclasses import replace

from r3l.environments.base import Reply
from r3l.environments.replies import after_thought, parse_tagged

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
EXPECTED_BOX = "Expected the final answer within \\boxed{}."


def parse_answer_reply(text: str) -> Reply:
    """Parse the text inside the one <answer> after the thought, stripped, or that of its last box. Anything else is
    invalid and says why, without a digit."""
    reply = parse_tagged(text, "answer", lambda count: "several" if count else "no")
    return replace(reply, action=last_box(reply.action) or reply.action)


def parse_boxed_reply(text: str) -> Reply:
    r"""Parse what the last \boxed{...} after the thought holds that holds something."""
    answer = last_box(after_thought(text))
    if answer is None:
        return Reply(False, "", f"Invalid reply: no \\boxed{{}} with balanced braces. {EXPECTED_BOX}")
    return Reply(True, answer) if answer else Reply(False, "", f"Invalid reply: \\boxed{{}} is empty. {EXPECTED_BOX}")


def last_box(text: str) -> str | None:
    r"""Find the content of the last \boxed{...} whose braces balance and that holds something, stripped; "" where all
    are empty, None if there is none. It takes one pass over the text."""
    boxes = {match.end() for match in BOX.finditer(text)}
    open_braces: list[int] = []
    holds, begin, end = False, -1, -1
    for brace in BRACE.finditer(text):
        if brace[0] == "{":
            open_braces.append(brace.end())
        elif brace[0] == "}" and open_braces and (start := open_braces.pop()) in boxes:
            # An empty box counts only until one that holds something was found, wherever that one stands.
            has_content = bool(text[start : brace.start()].strip())
            if (has_content, start) > (holds, begin):
                holds, begin, end = has_content, start, brace.start()
    return None if begin < 0 else text[begin:end].strip()

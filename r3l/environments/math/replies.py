"""Replies of mathematics: <think>...</think><answer>...</answer>, or a last \\boxed{...}."""

import re

from r3l.environments.base import Reply
from r3l.environments.replies import after_thought, parse_tagged, thought_end

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
EXPECTED_BOX = "Expected the final answer within \\boxed{}."


def parse_answer_reply(text: str) -> Reply:
    """Parse the text inside the one <answer> after the thought, stripped, or that of its last box. Anything else is
    invalid and says why, without a digit."""
    reply = parse_tagged(text, "answer", lambda count: "several" if count else "no")
    boxed = in_box(reply.action, reply.span[0]) if reply.span else None
    return boxed if boxed and boxed.valid else reply


def parse_boxed_reply(text: str) -> Reply:
    r"""Parse what the last \boxed{...} after the thought holds that holds something."""
    reply = in_box(after_thought(text), thought_end(text))
    return reply or Reply(False, "", f"Invalid reply: no \\boxed{{}} with balanced braces. {EXPECTED_BOX}")


def in_box(answer: str, begin: int) -> Reply | None:
    """Read the last box of an answer that begins at this place of the reply; None: it has no box."""
    if (box := last_box(answer)) is None:
        return None
    action = answer[slice(*box)]
    error = "" if action else f"Invalid reply: \\boxed{{}} is empty. {EXPECTED_BOX}"
    return Reply(bool(action), action, error, (begin + box[0], begin + box[1]))


def last_box(text: str) -> tuple[int, int] | None:
    r"""Find from where to where the last \boxed{...} whose braces balance and that holds something has its content,
    stripped; nothing where all are empty, None if there is none. It takes one pass over the text."""
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
    if begin < 0:
        return None
    content = text[begin:end].strip()
    start = text.index(content, begin)
    return start, start + len(content)

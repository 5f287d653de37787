"""A problem with its gold answer, as rows of the public sets hold it in their several column layouts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from r3l.environments.base import Reply
from r3l.environments.math.grader import Grade, Grader
from r3l.environments.outside import text_of, whole
from r3l.environments.replies import after_thought, parse_tagged, thought_end
from r3l.errors import WorldError

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


QUESTIONS = ("question", "problem", "prompt")
ONE_NUMBER = re.compile(r"[^\d,()\[\]{}]*\d{1,3}(?:,\d{3})+(?:\.\d+)?[^\d,()\[\]{}]*")
TYPES = ("subject", "subfield", "type")
FINAL_LINE = re.compile(r"####\s*(.+?)\s*$")
WRAPPING = [
    re.compile(pattern, re.DOTALL | re.IGNORECASE)
    for pattern in (
        r"^Solve the following math problem step by step\. The last line of your response should be of the form "
        r"Answer: .*?"
        r"is the answer to the problem\.\s*",
        r"\s*Remember to put your answer on its own line after .Answer:.\.?\s*$",
        r"\s*(Please|Let's) (reason|think) step by step,? and (put|output) (your|the) final answer within "
        r"\\boxed\{\}\.?\s*$",
    )
]


@dataclass(frozen=True, slots=True)
class Problem:
    """`entry` and `kind` are set for tasks of reasoning-gym, which are scored by its scorer; `gold` is then its
    answer."""

    name: str
    question: str
    gold: str
    task_type: str
    kind: str = ""
    entry: dict[str, Any] = field(default_factory=dict)

    def grade(self, grader: Grader, answer: str) -> Grade:
        return grader.score(self.kind, self.entry, answer) if self.kind else grader.verify(self.gold, answer)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Problem:
        return cls(**json.loads(text))


def problem_of(row: Mapping[str, Any], name: str, task_type: str) -> Problem:
    """Read a row of GSM8K, MATH, MinervaMath, OlympiadBench, AMC23 or DAPO; its own subject is the task type where it
    has one.

    Raises:
        WorldError: no question or no gold answer is found in it.
    """
    column = next((column for column in QUESTIONS if holds_value(row, column)), "")
    question, gold = row.get(column), gold_of(row)
    if isinstance(question, list):  # a chat: its last user message
        user_messages = [one for one in question if isinstance(one, Mapping) and one.get("role") == "user"]
        question = user_messages[-1].get("content") if user_messages else None
    if not column or not gold:
        raise WorldError(
            f"row {name}: no {'gold answer' if column else 'question'} in its columns {', '.join(map(str, row))}; "
            f"expected {' or '.join(QUESTIONS)}, and answer, final_answer, reward_model.ground_truth or a solution "
            f"with \\boxed{{}}"
        )
    question = text_of(question, f"row {name}, {column}")
    kind = next((str(row[column]) for column in TYPES if row.get(column)), task_type)
    return Problem(name, unwrap(question, row.get("context")), gold, kind)


def gold_of(row: Mapping[str, Any]) -> str:
    """Read the gold answer: OlympiadBench's final_answer, DAPO's ground truth, answer (GSM8K: behind ####), or the last
    box of the solution."""
    reward_model = row.get("reward_model")
    if holds_value(row, "final_answer"):
        return answer_text(row["final_answer"])
    if isinstance(reward_model, Mapping) and holds_value(reward_model, "ground_truth"):
        return answer_text(reward_model["ground_truth"])
    if holds_value(row, "answer"):
        answer = answer_text(row["answer"])
        final = FINAL_LINE.search(answer)
        return without_thousands(final[1]) if final else answer
    boxed = in_box(answer_text(row["solution"]), 0) if holds_value(row, "solution") else None
    return boxed.action if boxed else ""


def holds_value(row: Mapping[str, Any], column: str) -> bool:
    """Tell whether the column holds anything: 0 and False are answers too."""
    value = row.get(column)
    missing = value is None or value in ("", [], ()) or (isinstance(value, float) and math.isnan(value))
    return not missing and not (isinstance(value, str) and not value.strip())


def without_thousands(answer: str) -> str:
    """Drop the commas of a number's thousands: those of a pair or a list part its members."""
    return answer.replace(",", "") if ONE_NUMBER.fullmatch(answer) else answer


def answer_text(value: Any) -> str:
    """Write a gold answer as text: 27.0 is 27, several answers are listed, dollar signs around it go."""
    if isinstance(value, list | tuple):
        return ", ".join(answer_text(one) for one in value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = whole(str(value)).strip()
    return text[1:-1].strip() if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1] else text


def unwrap(question: str, context: Any) -> str:
    """Cut the set's own words about the answer's format from the problem: the system prompt has ours."""
    for pattern in WRAPPING:
        question = pattern.sub("", question)
    return f"{context}\n\n{question.strip()}" if context else question.strip()

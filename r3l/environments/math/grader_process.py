"""The grader: ``python -m r3l.environments.math.grader_process <seconds> <library>``. JSON lines in and out.

    {"ready": true}                                    once, when the library is imported
    {"gold": "1/2", "answer": "0.5"}                -> {"correct": true, "reason": ""}      by math_verify
    {"gold": "1/2", "answer": null}                 -> the same: can the gold answer be read?
    {"kind": "gcd", "entry": {...}, "answer": "4"}  -> the same                             by reasoning_gym's own
    scorer

An answer has <seconds> of processor time: an alarm then ends what Python can interrupt, and the kernel the whole
process where it is deep in one huge power.
"""

import importlib
import json
import logging
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from r3l.environments.math.offered import KINDS
from r3l.environments.math.reading import Unreadable, readable, same
from r3l.system.line_process import private_output, write

MEMORY_BYTES = 2 << 30
MERCY_S = 0.5  # of processor time, from the alarm to the end of the process


class OutOfTime(BaseException):
    """Raised at the time limit. It is no `Exception`, so that no library treats it as an answer that it cannot
    parse."""


def main() -> None:
    seconds, library = float(sys.argv[1]), sys.argv[2]
    answers = private_output()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    importlib.import_module(library)  # takes seconds, and the first parse some more: before any clock runs
    if library == "math_verify":
        verify_math("1/2", "0.5")
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, most))
    signal.signal(signal.SIGPROF, out_of_time)
    write(answers, {"ready": True})
    for line in sys.stdin:
        write(answers, mark_answer(json.loads(line), seconds))


def out_of_time(*_: object) -> None:
    raise OutOfTime


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Set an alarm after `seconds` of processor time, and let the kernel end the process `MERCY_S` later."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds + MERCY_S)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def mark_answer(request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Mark an answer. An error of a parser or scorer is a wrong mark with its reason, which never holds the gold
    answer."""
    try:
        with time_limit(seconds):
            return score_own(request) if "kind" in request else verify_math(request["gold"], request["answer"])
    except OutOfTime:
        return wrong("timeout")
    except (MemoryError, RecursionError, OverflowError) as error:
        return wrong(f"too large: {type(error).__name__}")
    # A scorer may raise anything at what a policy wrote: it becomes the mark's reason.
    except Exception as error:  # noqa: BLE001
        return wrong(f"unreadable: {type(error).__name__}")


def wrong(reason: str) -> dict[str, Any]:
    return {"correct": False, "reason": reason}


def verify_math(gold: str, answer: str | None) -> dict[str, Any]:
    """Grade with math-verify; without an answer, say whether the gold one can be read. No time limits of its own: they
    would replace the alarm here."""
    try:
        return {"correct": readable(gold) if answer is None else same(gold, answer), "reason": ""}
    except Unreadable as error:
        return wrong(f"unreadable: {error}")


def score_own(request: dict[str, Any]) -> dict[str, Any]:
    """Grade with the task's own scorer: solved means score 1."""
    import reasoning_gym

    if request["kind"] not in KINDS:
        return wrong("unreadable: a kind that is not offered")
    score = reasoning_gym.get_score_answer_fn(request["kind"])(request["answer"], request["entry"])
    return {"correct": float(score) >= 1.0, "reason": ""}


if __name__ == "__main__":
    main()

"""What code from outside gives back, made fit to be stored and trained on, or refused with its value and type.

Every answer of an environment passes here in the worker process (`r3l.environments.workers.sessions`), whoever wrote
the environment: a reward that is no finite number in [0, 1], or an observation that is no text, is one failed attempt.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral, Real
from typing import get_args

from r3l.environments.base import Observation, Reply, Role, Step, Verdict, World
from r3l.environments.replies import span_after_thought
from r3l.errors import WorldError
from r3l.records import Task
from r3l.records.column import LARGEST
from r3l.system.visible import mark

SLACK = 1e-9  # of the range: a sum of tenths may be 1.0000000000000002
SURROGATE = re.compile("[\ud800-\udfff]")


def value_and_type(value: object) -> str:
    """Show value and type as a message does, whatever the value's own code does."""
    try:
        text = f"{value!r:.80}"
    except Exception as error:  # noqa: BLE001 - its author may have written anything
        text = f"a value whose repr fails with {type(error).__name__}"
    return f"{whole(text)} ({type(value).__name__})"


def message_of(error: BaseException) -> str:
    """Write an error's type and text, or why it has no text."""
    try:
        text = str(error)
    except Exception as inner:  # noqa: BLE001 - its author may have written anything
        text = f"its text fails with {type(inner).__name__}"
    return whole(f"{type(error).__name__}: {text}")


def whole(text: str) -> str:
    """Make the text's halves of surrogate pairs, which no table holds, visible."""
    return SURROGATE.sub(lambda match: mark(match[0]), text)


def text_of(value: object, what: str) -> str:
    """Take a text, with what no table can hold made visible. Raise `WorldError` for anything else."""
    if not isinstance(value, str):
        raise WorldError(f"{what}: expected text, got {value_and_type(value)}")
    return whole(str(value))  # of a subclass, such as numpy's, the plain text


def number_of(value: object, what: str, low: float = 0.0, high: float = 1.0) -> float:
    """Take a number of whatever library as a float in [low, high]; what is beyond by rounding becomes the bound.

    Raises:
        WorldError: it is no number, not finite, or beyond the bounds.
    """
    try:
        number = float(value) if isinstance(value, Real) else math.nan  # a text such as "0.5" is no number
    except OverflowError:
        number = math.inf
    slack = SLACK * (high - low) if math.isfinite(high - low) else 0.0
    if not (math.isfinite(number) and low - slack <= number <= high + slack):
        raise WorldError(f"{what}: expected a finite number in [{low:g}, {high:g}], got {value_and_type(value)}")
    return min(max(number, low), high)


def share_of(value: object, what: str, low: float, high: float) -> float:
    """Convert a number between the bounds to a share in [0, 1]. Raise `WorldError` as `number_of` does."""
    return (number_of(value, what, low, high) - low) / (high - low)


def flag_of(value: object, what: str) -> bool:
    """Check for true or false, numpy's too. Raise `WorldError` for anything else: "False" is true to Python."""
    if (isinstance(value, bool | Integral) or type(value).__name__ in {"bool", "bool_"}) and value in (True, False):
        return bool(value)
    raise WorldError(f"{what}: expected true or false, got {value_and_type(value)}")


def observation_of(given: object) -> Observation:
    """Check what an environment says. Raise `WorldError`."""
    if not isinstance(given, Observation):
        raise WorldError(f"observation: expected an Observation, got {value_and_type(given)}")
    if given.role not in get_args(Role):
        raise WorldError(f"role of an observation: expected one of {get_args(Role)}, got {value_and_type(given.role)}")
    admissible = tuple(text_of(action, "an admissible action") for action in given.admissible)
    return replace(given, text=text_of(given.text, "observation"), admissible=admissible)


def step_of(given: object) -> Step:
    """Check the answer to an action. Raise `WorldError`."""
    if not isinstance(given, Step):
        raise WorldError(f"step: expected a Step, got {value_and_type(given)}")
    return Step(
        observation_of(given.observation),
        done=flag_of(given.done, "done"),
        reward=number_of(given.reward, "reward"),
        success=flag_of(given.success, "success"),
        accepted=flag_of(given.accepted, "accepted"),
        progress=None if given.progress is None else number_of(given.progress, "progress"),
        standing=number_of(given.standing, "standing"),
        turn_reward=None
        if given.turn_reward is None
        else number_of(given.turn_reward, "turn_reward", -LARGEST, LARGEST),
    )


def tasks_of(given: Iterable[object]) -> list[Task]:
    """Check the tasks of a split. Raise `WorldError` that names the place of the first that is none."""
    return [task_of(task, f"task {place}") for place, task in enumerate(given)]


def task_of(given: object, what: str) -> Task:
    if not isinstance(given, Task):
        raise WorldError(f"{what}: expected a Task, got {value_and_type(given)}")
    texts = ("task_id", "environment", "split", "task_type", "payload")
    seed = given.seed
    if not isinstance(seed, Integral) or not -(2**63) <= seed < 2**63:
        raise WorldError(f"{what}, seed: expected a whole number of 64 bits, got {value_and_type(seed)}")
    return replace(given, seed=int(seed), **{name: text_of(getattr(given, name), f"{what}, {name}") for name in texts})


def checked_verdict(given: object) -> Verdict:
    """Check an oracle's judgement. Raise `WorldError`."""
    if not isinstance(given, Verdict):
        raise WorldError(f"verdict: expected a Verdict, got {value_and_type(given)}")
    if given.pivot is not None and not isinstance(given.pivot, Integral):
        raise WorldError(f"pivot of a verdict: expected a number of turns or None, got {value_and_type(given.pivot)}")
    pivot = None if given.pivot is None else int(given.pivot)
    why, cause, advice = (text_of(text, "a verdict's text") for text in (given.why, given.cause, given.advice))
    return Verdict(pivot, why, cause, advice)


def hints_of(given: Iterable[object]) -> list[str]:
    """Check the hints of a task. Raise `WorldError` for one that is no text."""
    return [text_of(hint, "a hint") for hint in given]


def reply_of(world: World, text: str) -> Reply:
    """Parse what a model wrote. Whatever that is, and whatever the world's parser makes of it, it is a turn."""
    try:
        reply = world.parse_reply(text)
        if not isinstance(reply, Reply):
            raise WorldError(f"expected a Reply, got {value_and_type(reply)}")
        action, error = text_of(reply.action, "action"), text_of(reply.error, "error")
        valid, (start, stop) = bool(reply.valid) and action != "", reply.span or span_after_thought(text)
        return Reply(valid, action, error or "Invalid reply: it gives no action.", (int(start), int(stop)))
    except Exception as error:  # noqa: BLE001 - the parser is any world's, and the text is a model's
        return Reply(False, "", f"Invalid reply: it can't be read ({message_of(error)}).")

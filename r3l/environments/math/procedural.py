"""Problems made by reasoning-gym, seeded; no download. The splits share no question."""

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from r3l.config.environments import MathSettings
from r3l.environments.math.offered import KINDS
from r3l.environments.math.problems import Problem
from r3l.errors import WorldError
from r3l.system.packages import import_package
from r3l.system.seeds import derive

HELDOUT_SHARE = 5  # one question of so many is held out
TRIES = 40  # entries looked at for each that is asked for


def procedural_problems(settings: MathSettings, split: str) -> list[Problem]:
    """Make the split's problems; the kinds take turns.

    Raises:
        WorldError: an unknown split or kind, a kind that can't be used, or one that has too few questions.
    """
    number = {"train": settings.train_tasks, "heldout": settings.heldout_tasks, "test": settings.heldout_tasks}.get(
        split
    )
    if number is None:
        raise WorldError(f"procedural math has no split {split!r}: expected train or heldout")
    kinds = tuple(kind.strip() for kind in settings.kinds.split(",") if kind.strip())
    return list(generate_problems(kinds, "train" if split == "train" else "heldout", settings.tasks_seed, number))


@lru_cache(maxsize=8)
def generate_problems(kinds: tuple[str, ...], split: str, seed: int, number: int) -> tuple[Problem, ...]:
    if not kinds:
        raise WorldError(
            "procedural math: no kinds are set; list some of reasoning-gym's with commas, for example chain_sum,gcd"
        )
    each = -(-number // len(kinds))
    streams = [list(islice(questions(kind, split, seed, each), each)) for kind in kinds]
    if short := [f"{kind} ({len(stream)})" for kind, stream in zip(kinds, streams, strict=True) if len(stream) < each]:
        raise WorldError(
            f"procedural math: {each} {split} questions asked of each kind, too few in {', '.join(short)}: ask for "
            "fewer tasks or name other kinds"
        )
    return tuple(problem for turn in zip(*streams, strict=True) for problem in turn)[:number]


def questions(kind: str, split: str, seed: int, number: int) -> Iterator[Problem]:
    """Yield distinct questions of one kind that belong to `split`, and whose stored form still takes its own answer as
    solved."""
    dataset = make_dataset(kind, derive(seed, "math", kind) % 2**31, number * TRIES)
    questions_seen: set[str] = set()
    for index in range(number * TRIES):
        problem = as_problem(kind, index, dataset[index])
        if problem.question in questions_seen or split_of(problem.question) != split or not solves(dataset, problem):
            continue
        questions_seen.add(problem.question)
        yield problem


def split_of(question: str) -> str:
    return "heldout" if derive(0, "math split", question) % HELDOUT_SHARE == 0 else "train"


def make_dataset(kind: str, seed: int, size: int) -> Any:
    """Make the lazy dataset of a kind. Raise `WorldError` where there is none."""
    if kind not in KINDS:
        raise WorldError(f"procedural math: kind {kind!r} is not offered; expected some of {', '.join(KINDS)}")
    return import_package("reasoning_gym", "math").create_dataset(kind, size=size, seed=seed)


def as_problem(kind: str, index: int, entry: dict[str, Any]) -> Problem:
    """Keep of the entry what JSON keeps, which is what is scored: fractions and the like become text."""
    plain = json.loads(json.dumps(entry, default=str))
    return Problem(f"{kind}-{index:05d}", str(plain["question"]).strip(), str(plain["answer"]), kind, kind, plain)


def solves(dataset: Any, problem: Problem) -> bool:
    """Tell whether a problem's stored form takes its own answer as solved: not where a scorer needs more than JSON
    keeps."""
    try:
        return float(dataset.score_answer(problem.gold, problem.entry)) >= 1.0
    except (TypeError, ValueError, KeyError, AttributeError):
        return False

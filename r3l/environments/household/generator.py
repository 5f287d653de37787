"""Household tasks by seed. The splits share no errand: which split an errand belongs to follows from the errand
itself."""

import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import count

from r3l.environments.household.engine import HouseholdEngine
from r3l.environments.household.game import (
    FINAL,
    KINDS,
    KNIVES,
    OPENABLE,
    SLICEABLE,
    SURFACES,
    TREATABLE,
    Game,
    Level,
    Wanted,
    is_searched,
    kind_of,
)
from r3l.environments.household.solver import solve
from r3l.errors import WorldError
from r3l.system.seeds import derive

SPLITS = ("train", "heldout")
HELDOUT_SHARE = 5  # one errand of so many is held out
MARK_OF = {"clean": "clean", "heat": "hot", "cool": "cool"}
TASK_TYPES = {
    None: "pick_and_place_simple",
    "clean": "pick_clean_then_place_in_recep",
    "heat": "pick_heat_then_place_in_recep",
    "cool": "pick_cool_then_place_in_recep",
}
ROOMS: dict[Level, dict[str, int]] = {
    "short": {"countertop": 1, "diningtable": 1, "fridge": 1, "microwave": 1, "shelf": 1, "sinkbasin": 1},
    "easy": {"cabinet": 1, "countertop": 1, "diningtable": 1, "fridge": 1, "microwave": 1, "shelf": 1, "sinkbasin": 1},
    "standard": {
        "cabinet": 3,
        "countertop": 2,
        "diningtable": 1,
        "drawer": 2,
        "fridge": 1,
        "garbagecan": 1,
        "microwave": 1,
        "shelf": 2,
        "sidetable": 1,
        "sinkbasin": 1,
    },
    "long": {
        "box": 1,
        "cabinet": 2,
        "countertop": 1,
        "diningtable": 1,
        "drawer": 1,
        "fridge": 1,
        "garbagecan": 1,
        "microwave": 1,
        "shelf": 1,
        "sinkbasin": 1,
    },
}
OTHERS: dict[Level, int] = {"short": 1, "easy": 3, "standard": 8, "long": 4}  # objects that nobody asked for
TARGETS = ("cabinet", "countertop", "diningtable", "drawer", "fridge", "shelf", "sidetable")
PACKED = "pack_four"  # four of a kind that lie together: long to bring, short to find
LONG_TURNS = 20  # a task of level long takes at least so many


def games(level: Level, split: str, seed: int) -> Iterator[Game]:
    """Yield an endless stream; the n-th game of a split is the same however many are asked for.

    Raises:
        WorldError: there is no such split.
    """
    if split not in SPLITS:
        raise WorldError(f"household split {split!r}: expected one of {', '.join(SPLITS)}")
    for index in count():
        game = draw(level, random.Random(derive(seed, "household", level, split, index)))
        if split_of(game) == split and (level != "long" or len(solve(HouseholdEngine(game))) >= LONG_TURNS):
            yield game


@lru_cache(maxsize=8)
def first_games(level: Level, split: str, seed: int, number: int) -> tuple[Game, ...]:
    stream = games(level, split, seed)
    return tuple(next(stream) for _ in range(number))


def split_of(game: Game) -> str:
    return "heldout" if derive(0, "household split", game.level, game.key()) % HELDOUT_SHARE == 0 else "train"


def draw(level: Level, rng: random.Random) -> Game:
    receptacles = tuple(f"{kind} {number}" for kind, many in ROOMS[level].items() for number in range(1, many + 1))
    task_type, goals, target = errand(level, rng)
    kinds = [one.kind for one in goals for _ in range(one.count)]
    kinds += ["knife"] if level in {"standard", "long"} else []
    fillers = [kind for kind in KINDS if level == "standard" or kind not in kinds]
    kinds += [rng.choice(fillers) for _ in range(OTHERS[level])]
    # ``[mug, pan, mug]`` becomes ``[mug 1, mug 2, pan 1]``
    objects = sorted(f"{kind} {kinds[:i].count(kind) + 1}" for i, kind in enumerate(kinds))
    sources = [
        i
        for i, name in enumerate(receptacles)
        if kind_of(name) not in FINAL | {target, "microwave"} and is_searched(level, name)
    ]
    closed_sources = [i for i in sources if kind_of(receptacles[i]) in OPENABLE]
    places = [rng.choice(closed_sources if level == "long" and rng.random() < 0.5 else sources) for _ in objects]
    if task_type == PACKED:
        places = [
            places[objects.index(f"{goals[0].kind} 1")] if kind_of(name) == goals[0].kind else place
            for name, place in zip(objects, places, strict=True)
        ]
    return Game(level, task_type, receptacles, tuple(objects), tuple(places), goals, target)


def errand(level: Level, rng: random.Random) -> tuple[str, tuple[Wanted, ...], str]:
    """Draw the task type, what is wanted, and where."""
    if level == "long":
        return long_errand(rng)
    targets = SURFACES if level == "short" else TARGETS
    target = rng.choice([kind for kind in targets if kind in ROOMS[level]])
    if level == "standard" and rng.random() < 0.2:
        return "pick_two_obj_and_place", (Wanted(rng.choice(KINDS), (), 2),), target
    verb = rng.choice([None, "clean", "heat", "cool"])
    if verb is None:
        return TASK_TYPES[None], (Wanted(rng.choice(KINDS), ()),), target
    return TASK_TYPES[verb], (Wanted(rng.choice(sorted(TREATABLE[verb])), (MARK_OF[verb],)),), target


def long_errand(rng: random.Random) -> tuple[str, tuple[Wanted, ...], str]:
    """Draw the things for the box, each treated: four of one kind in a third of the tasks, else of three kinds, the
    first sliced in half."""
    if rng.random() < 1 / 3:
        verb = rng.choice(["clean", "heat", "cool"])
        return PACKED, (Wanted(rng.choice(sorted(TREATABLE[verb] - KNIVES)), (MARK_OF[verb],), 4),), "box"
    goals: list[Wanted] = []
    cut = rng.random() < 0.5
    for verb in rng.sample(["clean", "heat", "cool"], 3):
        kinds = TREATABLE[verb] - KNIVES - {one.kind for one in goals}
        first_cut = cut and not goals
        kind = rng.choice(sorted(kinds & SLICEABLE if first_cut else kinds))
        twice = verb != "clean" and kind in TREATABLE["clean"] and rng.random() < 0.3
        conditions = [*(["clean"] if twice else []), MARK_OF[verb], *(["sliced"] if first_cut else [])]
        goals.append(Wanted(kind, tuple(conditions)))
    return "pack_sliced" if cut else "pack_treated", tuple(goals), "box"

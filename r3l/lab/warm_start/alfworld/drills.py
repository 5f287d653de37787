"""Drills: listings as the game prints them, with names drawn at random, and what a searcher thinks of each.

No game is played: the names are mostly ones that never stand together in a kitchen, so that nothing helps but copying
them and comparing each with the target. A small model learns that here in minutes, and not at all from whole episodes
alone.
"""

import random

from r3l.environments.alfworld.errand import TREATMENT, Errand
from r3l.lab.warm_start.alfworld.demonstrations import DemoTurn
from r3l.lab.warm_start.alfworld.renaming import object_kinds

OPEN = ("cabinet", "drawer", "fridge", "microwave")
FLAT = ("countertop", "shelf", "diningtable", "sinkbasin", "stoveburner")
SENTENCE = {
    "put": "put some {} on {}.",
    "heat": "heat some {} and put it in {}.",
    "cool": "cool some {} and put it in {}.",
    "clean": "clean some {} and put it in {}.",
}
TURNS = 6
LISTED = 5  # names in a listing, at most
NUMBERS = (1, 1, 1, 2, 3)
TARGET_SHARE = 0.45


def drill(rng: random.Random) -> list[DemoTurn]:
    """Make one drill: a first observation with a task, then `TURNS` listings. A turn where the target is not listed is
    marked stray: where to go next is arbitrary here."""
    task_type = rng.choice(["pick_and_place_simple", *TREATMENT])
    errand = Errand(task_type, rng.choice(object_kinds()), rng.choice(OPEN + FLAT))
    verb = errand.treatment[0] if errand.treatment else "put"
    rooms = [f"{kind} {rng.randint(1, 2)}" for kind in rng.sample(OPEN + FLAT, 7)]
    opening = (
        f"You are in the middle of a room. Looking quickly around you, you see {list_in_words(rooms)}.\n\n"
        f"Your task is to: {SENTENCE[verb].format(errand.target, errand.parent)}"
    )
    turns = [
        DemoTurn(
            opening, f"<think>{errand.plan}: no.</think><action>go to {rooms[0]}</action>", f"go to {rooms[0]}", True
        )
    ]
    return turns + [listing(rng, errand, rng.choice(rooms), rng.choice(rooms)) for _ in range(TURNS)]


def listing(rng: random.Random, errand: Errand, here: str, next_place: str) -> DemoTurn:
    names = [f"{rng.choice(object_kinds())} {rng.choice(NUMBERS)}" for _ in range(rng.randint(1, LISTED))]
    if rng.random() < TARGET_SHARE:
        names[rng.randrange(len(names))] = f"{errand.target} {rng.choice(NUMBERS)}"
    has_door = here.split()[0] in OPEN
    observation = (
        f"You open the {here}. The {here} is open. In it, you see {list_in_words(names)}."
        if has_door
        else f"You arrive at {here}. On the {here}, you see {list_in_words(names)}."
    )
    wanted = next((name for name in names if name.split()[0] == errand.target), None)
    names_read = names[: names.index(wanted) + 1] if wanted else names
    thought = f"{errand.plan}: see {', '.join(names_read)}. {f'yes, {wanted}.' if wanted else 'no.'}"
    action = f"take {wanted} from {here}" if wanted else f"go to {next_place}"
    return DemoTurn(observation, f"<think>{thought}</think><action>{action}</action>", action, wanted is None)


def list_in_words(names: list[str]) -> str:
    """Write the names as the game lists them: ``a mug 1, a pan 2, and a egg 1``."""
    words = [f"a {name}" for name in names]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f", and {words[-1]}"

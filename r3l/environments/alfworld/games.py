"""Real ALFWorld games from the wheel's own rooms, affordances, goals, domain and grammar: a few milliseconds each.

A game is drawn from (games, seed, split, index) alone, so any game can be made again, in any order, on any machine.
"""

import random
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from r3l.environments.alfworld.problem import problem_text
from r3l.environments.alfworld.rooms import (
    TASK_TYPES,
    Placed,
    Receptacle,
    Room,
    affordances,
    floor_plans,
    load_room,
    package_folder,
    small_kitchen,
)
from r3l.errors import WorldError
from r3l.system.seeds import derive

Games = Literal["kitchen", "full"]
PLACE, _, CLEAN, HEAT, COOL, _ = TASK_TYPES
KITCHEN_TYPES = (HEAT, COOL, CLEAN, PLACE, CLEAN, HEAT, COOL, PLACE, COOL, CLEAN, HEAT, COOL, HEAT, CLEAN, PLACE)
TREATMENTS = {
    CLEAN: ("cleanable", "SinkBasin"),
    HEAT: ("heatable", "Microwave"),
    COOL: ("coolable", "Fridge"),
}
LAMP_STANDS = ("Desk", "Dresser", "Shelf", "SideTable")
TRIES = 1000


@dataclass(frozen=True, slots=True)
class Counts:
    """Equally likely numbers of objects: of the target's kind, and of each other kind in the room."""

    target: tuple[int, ...]
    other: tuple[int, ...]


# A kitchen has one object of a kind, so that a name read half is still the right one: a policy of a million parameters
# copies "mug 1" well before it tells "mug 1" from "mug 2".
COUNTS: dict[Games, Counts] = {"kitchen": Counts((1,), (0, 1, 1, 1)), "full": Counts((1, 2), (0, 1, 1, 2, 3))}


@dataclass(frozen=True, slots=True)
class Goal:
    task_type: str
    target: str
    parent: str = ""  # type of the receptacle that the target goes to
    toggle: str = ""


@dataclass(frozen=True, slots=True)
class Game:
    name: str
    goal: Goal
    content: dict[str, Any]  # of game.tw-pddl
    trajectory: dict[str, Any]  # of traj_data.json


def generate_game(games: Games, seed: int, split: str, index: int) -> Game:
    """Generate game `index` of a split. Raise `WorldError` where no room suits the goal in many draws."""
    kinds = KITCHEN_TYPES if games == "kitchen" else TASK_TYPES
    rng = random.Random(derive(seed, "alfworld", games, split, index))
    for _ in range(TRIES):
        room_goal_objects = draw(kinds[index % len(kinds)], games, rng)
        if room_goal_objects is not None:
            return write_out(f"{index:05d}", *room_goal_objects, rng)
    raise WorldError(
        f"no room suits {kinds[index % len(kinds)]} in {TRIES} draws (games {games}, seed {seed}, game {index} of "
        f"{split})"
    )


def draw(task_type: str, games: Games, rng: random.Random) -> tuple[Room, Goal, list[Placed]] | None:
    room = load_room(rng.choice(floor_plans(games == "kitchen")))
    if games == "kitchen":
        room = small_kitchen(room, rng)
    goal = draw_goal(task_type, room, rng)
    objects = place_objects(room, goal, COUNTS[games], rng) if goal else None
    return (room, goal, objects) if goal and objects else None


def draw_goal(task_type: str, room: Room, rng: random.Random) -> Goal | None:
    """Draw what to bring where, or None where the room has not what it takes."""
    tables = affordances()
    treatment, device = TREATMENTS.get(task_type, ("", ""))
    candidates = [kind for kind in room.object_types if kind in tables.portable]
    if device:
        candidates = (
            [kind for kind in candidates if kind in tables.property_of[treatment]]
            if device in room.receptacle_types
            else []
        )
    if not candidates:
        return None
    target = rng.choice(candidates)
    if task_type == "look_at_obj_in_light":
        lit = "DeskLamp" in room.object_types and room.receptacle_types & set(LAMP_STANDS)
        return Goal(task_type, target, toggle="DeskLamp") if lit else None
    parents = sorted(kind for kind in room.receptacle_types - {device} if target in tables.holds[kind])
    return Goal(task_type, target, rng.choice(parents)) if parents else None


def place_objects(room: Room, goal: Goal, counts: Counts, rng: random.Random) -> list[Placed] | None:
    """Place the targets away from where they belong, the lamp, and some of each other kind; None where a target has no
    place or two names are equal."""
    least = 2 if goal.task_type == "pick_two_obj_and_place" else 1
    objects: list[Placed] = []
    for _ in range(max(least, rng.choice(counts.target))):
        objects += place(goal.target, room, rng, avoid=goal.parent)
    if len(objects) < least:
        return None
    if goal.toggle:
        stands = [receptacle for receptacle in room.receptacles if receptacle.type in LAMP_STANDS]
        stand = rng.choice(stands)
        objects.append(Placed(goal.toggle, object_name(goal.toggle, stand, rng), stand))
    for kind in room.object_types:
        if kind in affordances().portable and kind != goal.target:
            for _ in range(rng.choice(counts.other)):
                objects += place(kind, room, rng)
    # Two objects that fall on the same hundredth of a metre would share a name, which the planner refuses.
    return objects if len({one.name for one in objects}) == len(objects) else None


def place(kind: str, room: Room, rng: random.Random, avoid: str = "") -> list[Placed]:
    holds = affordances().holds
    fitting = [
        receptacle for receptacle in room.receptacles if kind in holds[receptacle.type] and receptacle.type != avoid
    ]
    if not fitting:
        return []
    receptacle = rng.choice(fitting)
    return [Placed(kind, object_name(kind, receptacle, rng), receptacle)]


def object_name(kind: str, receptacle: Receptacle, rng: random.Random) -> str:
    """Make a name of coordinates near the receptacle's: they only make it unique, as in the downloaded games."""
    x, y, z = (float(part) for part in receptacle.name.split("|")[1:4])
    near = (x + rng.uniform(-0.3, 0.3), y + 0.05, z + rng.uniform(-0.3, 0.3))
    return "|".join([kind, *(f"{'+' if value >= 0 else '-'}{abs(value):05.2f}" for value in near)])


def write_out(index: str, room: Room, goal: Goal, placed: list[Placed], rng: random.Random) -> Game:
    occupied_spots = {receptacle.place[:2] for receptacle in room.receptacles}
    x, z = rng.choice([spot for spot in room.floor if spot not in occupied_spots])
    goals, domain, grammar = goal_library()
    entry = goals[goal.task_type]
    words = {"obj": goal.target, "recep": goal.parent, "toggle": goal.toggle}
    sentence = rng.choice(entry["templates"]).format(**{key: word.lower() for key, word in words.items()})
    problem = problem_text(goal.task_type, room, placed, (x, z, rng.randrange(4), 30), entry["pddl"].format(**words))
    name = f"{index}-{goal.task_type}-{goal.target}-{goal.parent or goal.toggle}-{room.number}"
    content = {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL", sentence),
        "pddl_problem": problem,
        "solvable": True,
        "walkthrough": None,
    }
    params = {
        "object_target": goal.target,
        "parent_target": goal.parent,
        "toggle_target": goal.toggle,
        "mrecep_target": "",
        "object_sliced": False,
    }
    trajectory = {
        "task_type": goal.task_type,
        "pddl_params": params,
        "scene": {"floor_plan": f"FloorPlan{room.number}"},
        "task_id": name,
    }
    return Game(name, goal, content, trajectory)


@cache
def goal_library() -> tuple[dict[str, Any], str, str]:
    """Load goals and sentences, domain and grammar, as the wheel ships them."""
    from alfworld.gen import goal_library as library

    data = package_folder() / "data"
    return library.gdict, (data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text()

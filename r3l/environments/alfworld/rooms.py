"""Rooms and affordances as the alfworld wheel ships them: the places of objects in a floor plan, and the possible
actions on each.

alfworld is imported inside the functions only, so that listing tasks stays cheap.
"""

import json
import random
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
# Of what stands in a room, these are furniture or fixtures: no hand picks them up.
FIXTURES = (
    "Bathtub BathtubBasin Blinds Cart Chair Curtains DeskLamp Faucet FloorLamp Footstool HousePlant LaundryHamperLid "
    "LightSwitch Mirror Painting Poster ShowerDoor ShowerGlass ShowerHead Sink SinkBasin StoveKnob Television Toilet "
    "Window"
)
KITCHENS = range(1, 31)
SMALL_KITCHEN_RECEPTACLES = 7
SMALL_KITCHEN_KEEPS = ("SinkBasin", "Microwave", "Fridge")
SMALL_KITCHEN_PER_TYPE = {"Cabinet": 2, "CounterTop": 2}
SMALL_KITCHEN_OBJECT_SHARE = 0.3

Place = tuple[int, int, int, int]  # x and z in quarter metres, quarter turns, horizon in degrees


@dataclass(frozen=True, slots=True)
class Receptacle:
    name: str  # Type|+x|+y|+z, as in the layouts
    type: str
    place: Place


@dataclass(frozen=True, slots=True)
class Placed:
    """One object in its receptacle."""

    type: str
    name: str
    receptacle: Receptacle


@dataclass(frozen=True, slots=True)
class Room:
    number: int
    object_types: tuple[str, ...]
    receptacles: tuple[Receptacle, ...]
    floor: tuple[tuple[int, int], ...]  # where an agent can stand, in quarter metres

    @property
    def receptacle_types(self) -> set[str]:
        return {receptacle.type for receptacle in self.receptacles}


@dataclass(frozen=True, slots=True)
class Affordances:
    """receptacle_types: static ones; object_types: all others; portable: those that a hand picks up."""

    receptacle_types: tuple[str, ...]
    object_types: tuple[str, ...]
    portable: frozenset[str]
    holds: dict[str, frozenset[str]]  # receptacle type -> object types
    property_of: dict[str, frozenset[str]]  # cleanable, heatable, ... -> object types
    openable: frozenset[str]


@cache
def affordances() -> Affordances:
    from alfworld.gen import constants

    static = set(constants.RECEPTACLES) - set(constants.MOVABLE_RECEPTACLES)
    objects = sorted(set(constants.OBJECTS_SET) - static)
    holds = {kind: frozenset(constants.VAL_RECEPTACLE_OBJECTS.get(kind, ())) for kind in static}
    placeable = frozenset().union(*holds.values())
    properties = {name.lower(): frozenset(kinds) for name, kinds in constants.VAL_ACTION_OBJECTS.items()}
    return Affordances(
        tuple(sorted(static)),
        tuple(objects),
        frozenset(set(objects) & placeable) - set(FIXTURES.split()),
        holds,
        properties,
        frozenset(constants.OPENABLE_CLASS_SET),
    )


@cache
def floor_plans(kitchens_only: bool) -> tuple[int, ...]:
    """List the wheel's training rooms (ALFWorld's own split of the floor plans)."""
    from alfworld.gen import constants

    return tuple(number for number in constants.TRAIN_SCENE_NUMBERS if not kitchens_only or number in KITCHENS)


def package_folder() -> Path:
    import alfworld

    return Path(alfworld.__file__).parent


@cache
def load_room(number: int) -> Room:
    """Load one floor plan of the wheel."""
    import numpy as np

    stem = str(package_folder() / "gen" / "layouts" / f"FloorPlan{number}")
    points: dict[str, list[float]] = json.loads(Path(f"{stem}-openable.json").read_text())
    static = set(affordances().receptacle_types)
    receptacles = [Receptacle(name, receptacle_type(name), place_of(point)) for name, point in sorted(points.items())]
    layout: Any = np.load(f"{stem}-layout.npy")
    floor = tuple(sorted({(round(x / 0.25), round(z / 0.25)) for x, z in layout[:, :2].tolist()}))
    objects = tuple(sorted(set(json.loads(Path(f"{stem}-objects.json").read_text()))))
    return Room(number, objects, tuple(receptacle for receptacle in receptacles if receptacle.type in static), floor)


def receptacle_type(name: str) -> str:
    """Read the type in a receptacle's id: ``Cabinet|+00.68|...`` is a Cabinet, ``Sink|...|SinkBasin`` a SinkBasin."""
    parts = name.split("|")
    return parts[-1] if parts[-1].endswith("Basin") else parts[0]


def place_of(point: list[float]) -> Place:
    x, z, rotation, horizon = point
    return round(x / 0.25), round(z / 0.25), round(rotation / 90), round(horizon)


def small_kitchen(room: Room, rng: random.Random) -> Room:
    """Choose at most seven receptacles (sink, microwave and fridge stay), each at a place of its own, and about a third
    of the kinds of objects. The engine refuses to go from one receptacle to another at the same place."""
    receptacles: list[Receptacle] = []
    for receptacle in sorted(
        rng.sample(room.receptacles, len(room.receptacles)), key=lambda item: item.type not in SMALL_KITCHEN_KEEPS
    ):
        same = sum(other.type == receptacle.type for other in receptacles) < SMALL_KITCHEN_PER_TYPE.get(
            receptacle.type, 1
        )
        alone = receptacle.place not in {other.place for other in receptacles}
        if same and alone and len(receptacles) < SMALL_KITCHEN_RECEPTACLES:
            receptacles.append(receptacle)
    objects = tuple(kind for kind in room.object_types if rng.random() < SMALL_KITCHEN_OBJECT_SHARE)
    return replace(room, object_types=objects, receptacles=tuple(sorted(receptacles, key=lambda item: item.name)))

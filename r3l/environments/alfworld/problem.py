"""The PDDL problem of a generated game, in the form of the downloaded ones (names mangled so that PDDL accepts
them)."""

from collections.abc import Iterable, Iterator

from r3l.environments.alfworld.rooms import Place, Placed, Room, affordances

PROPERTIES = ("cleanable", "heatable", "coolable", "toggleable", "sliceable")
MANGLED = str.maketrans({"-": "_minus_", "|": "_bar_", "+": "_plus_", ".": "_dot_", ",": "_comma_", "#": "-"})


def problem_text(name: str, room: Room, placed: list[Placed], start: Place, goal: str) -> str:
    """Write the problem's text. `goal` is the filled-in template of alfworld's goal library: it ends with the
    parenthesis that closes the problem."""
    return "\n".join(
        [
            f"(define (problem plan_{name}_{room.number})",
            "(:domain alfred)",
            "(:objects",
            *declarations(room, placed, start),
            ")",
            "(:init",
            *mangled(room_facts(room)),
            *mangled(object_facts(placed)),
            mangle(f"(atLocation agent1 {location(start)})"),
            ")",
            mangle(goal),
        ]
    )


def declarations(room: Room, placed: list[Placed], start: Place) -> Iterator[str]:
    tables = affordances()
    yield "agent1 - agent"
    yield from (f"{kind}Type - otype" for kind in tables.object_types)
    yield from (f"{kind}Type - rtype" for kind in tables.receptacle_types)
    yield from (f"{mangle(item.name)} - object" for item in placed)
    yield from (f"{mangle(receptacle.name)} - receptacle" for receptacle in room.receptacles)
    places = sorted({receptacle.place for receptacle in room.receptacles} | {start})
    yield from (f"{mangle(location(place))} - location" for place in places)


def room_facts(room: Room) -> Iterator[str]:
    tables = affordances()
    for receptacle in room.receptacles:
        yield f"(receptacleType {receptacle.name} {receptacle.type}Type)"
        yield f"(receptacleAtLocation {receptacle.name} {location(receptacle.place)})"
        if receptacle.type in tables.openable:
            yield f"(openable {receptacle.name})"
    for kind in tables.receptacle_types:
        yield from (
            f"(canContain {kind}Type {kind_held}Type)"
            for kind_held in sorted(tables.holds[kind] & set(tables.object_types))
        )


def object_facts(placed: list[Placed]) -> Iterator[str]:
    tables = affordances()
    for item in placed:
        yield f"(objectType {item.name} {item.type}Type)"
        yield f"(inReceptacle {item.name} {item.receptacle.name})"
        yield f"(objectAtLocation {item.name} {location(item.receptacle.place)})"
        if item.type in tables.portable:
            yield f"(pickupable {item.name})"
        yield from (f"({name} {item.name})" for name in PROPERTIES if item.type in tables.property_of[name])


def location(place: Place) -> str:
    return "loc|" + "|".join(map(str, place))


def mangled(lines: Iterable[str]) -> Iterator[str]:
    return map(mangle, lines)


def mangle(text: str) -> str:
    return text.translate(MANGLED)

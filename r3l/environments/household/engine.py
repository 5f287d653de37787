"""The rules of the household world. A state is a value, so that a snapshot is the state itself."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from r3l.environments.household.game import (
    COOL,
    FINAL,
    HOT,
    KNIVES,
    OPENABLE,
    RUINED,
    SLICEABLE,
    SLICED,
    TREATABLE,
    TREATMENTS,
    Game,
    kind_of,
    list_in_words,
)
from r3l.errors import WorldError

NOTHING = "Nothing happens."
NOWHERE = HAND = -1


class State(NamedTuple):
    """`places[i]`: receptacle of object i, or HAND. `marks[i]`: its bits. `opened`: a bit for each receptacle."""

    at: int
    held: int
    places: tuple[int, ...]
    marks: tuple[int, ...]
    opened: int


def replace_at(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


class HouseholdEngine:
    """One game's rules: ``step(state, action) -> (state, observation)``. Holds no state of an episode."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.capacity = sum(goal.count for goal in game.wanted)
        self.receptacles = {name: index for index, name in enumerate(game.receptacles)}
        self.objects = {name: index for index, name in enumerate(game.objects)}
        self.receptacle_kinds = [kind_of(name) for name in game.receptacles]
        self.object_kinds = [kind_of(name) for name in game.objects]
        self.of_kind: dict[str, list[int]] = {goal.kind: [] for goal in game.wanted}
        for index, kind in enumerate(self.object_kinds):
            self.of_kind.setdefault(kind, []).append(index)
        self.openable = [kind in OPENABLE for kind in self.receptacle_kinds]
        self.final = [game.strict and kind in FINAL for kind in self.receptacle_kinds]
        self.first = State(
            NOWHERE,
            NOWHERE,
            game.places,
            (0,) * len(game.objects),
            sum(1 << i for i, openable in enumerate(self.openable) if not openable),
        )
        self.intro = "You are in the middle of a room. Looking quickly around you, you see "
        two: dict[str, Callable[[State, str, str], tuple[State, str]]] = {
            "take": self.take,
            "move": self.move,
            "slice": self.slice,
            "clean": self.treat("clean"),
            "heat": self.treat("heat"),
            "cool": self.treat("cool"),
        }
        self.two_places = {
            (verb, word): act
            for (verb, act), word in zip(two.items(), ("from", "to", "with", "with", "with", "with"), strict=True)
        }

    def opening(self) -> str:
        everything = list_in_words([f"a {name}" for name in self.game.receptacles])
        return f"{self.intro}{everything}.\n\nYour task is to: {self.game.task()}"

    def step(self, state: State, action: str) -> tuple[State, str]:
        """Take an action: the new state and the observation; `NOTHING` for an action that is unknown or impossible
        here."""
        words = action.split()
        if len(words) == 6:  # verb, object, its number, word, receptacle or knife, its number
            act = self.two_places.get((words[0], words[3]))
            return act(state, f"{words[1]} {words[2]}", f"{words[4]} {words[5]}") if act else (state, NOTHING)
        if len(words) == 4 and words[0] == "go" and words[1] == "to":
            return self.go(state, f"{words[2]} {words[3]}")
        if len(words) == 3:
            return self.one_place(state, words[0], f"{words[1]} {words[2]}")
        if action.strip() == "look":
            return state, self.look(state)
        if action.strip() == "inventory":
            return (
                state,
                f"You are carrying: a {self.game.objects[state.held]}."
                if state.held >= 0
                else "You are not carrying anything.",
            )
        return state, NOTHING

    def one_place(self, state: State, verb: str, name: str) -> tuple[State, str]:
        if verb == "examine":
            return state, self.examine(state, name)
        place = self.receptacles.get(name, NOWHERE)
        if place != state.at or place < 0 or not self.openable[place] or verb not in ("open", "close"):
            return state, NOTHING
        is_open = bool(state.opened >> place & 1)
        if verb == "open" and not is_open:
            state = state._replace(opened=state.opened | 1 << place)
            return state, f"You open the {name}. {self.view(state, place)}"
        if verb == "close" and is_open:
            return state._replace(opened=state.opened & ~(1 << place)), f"You close the {name}."
        return state, NOTHING

    def go(self, state: State, name: str) -> tuple[State, str]:
        place = self.receptacles.get(name, NOWHERE)
        if place < 0 or place == state.at:
            return state, NOTHING
        state = state._replace(at=place)
        return state, f"You arrive at {name}. {self.view(state, place)}"

    def view(self, state: State, place: int) -> str:
        """Describe what a receptacle shows; a closed one shows nothing of its contents."""
        name = self.game.receptacles[place]
        if not state.opened >> place & 1:
            return f"The {name} is closed."
        names = self.game.objects
        inside = list_in_words([f"a {names[i]}" for i, where in enumerate(state.places) if where == place])
        return (
            f"The {name} is open. In it, you see {inside}."
            if self.openable[place]
            else f"On the {name}, you see {inside}."
        )

    def look(self, state: State) -> str:
        if state.at < 0:
            return f"{self.intro}nothing."
        return f"You are facing the {self.game.receptacles[state.at]}. Next to it, you see nothing."

    def reachable(self, state: State) -> bool:
        """Tell whether the agent stands before a receptacle that is open."""
        return state.at >= 0 and bool(state.opened >> state.at & 1)

    def examine(self, state: State, name: str) -> str:
        if self.receptacles.get(name, NOWHERE) == state.at and state.at >= 0:
            return self.view(state, state.at)
        index = self.objects.get(name, NOWHERE)
        if index < 0 or not (state.held == index or (self.reachable(state) and state.places[index] == state.at)):
            return NOTHING
        mark = state.marks[index]
        adjectives = [word for word, bit in (("hot", HOT), ("cool", COOL), ("clean", 1)) if mark & bit]
        words = [
            *([" and ".join(adjectives)] if adjectives else []),
            *(["sliced"] if mark & SLICED else []),
            *(["ruined"] if mark & RUINED else []),
        ]
        return f"This is a {' '.join([*words, name])}." if words else f"There's nothing special about {name}."

    def take(self, state: State, name: str, source: str) -> tuple[State, str]:
        index, place = self.objects.get(name, NOWHERE), self.receptacles.get(source, NOWHERE)
        if (
            index < 0
            or place < 0
            or place != state.at
            or state.held >= 0
            or state.places[index] != place
            or not state.opened >> place & 1
            or self.final[place]
        ):
            return state, NOTHING
        return state._replace(
            held=index, places=replace_at(state.places, index, HAND)
        ), f"You pick up the {name} from the {source}."

    def move(self, state: State, name: str, target: str) -> tuple[State, str]:
        place = self.receptacles.get(target, NOWHERE)
        if state.held < 0 or self.game.objects[state.held] != name or place != state.at or not self.reachable(state):
            return state, NOTHING
        state = state._replace(held=NOWHERE, places=replace_at(state.places, state.held, place))
        seal_text = f" The {target} is sealed." if self.sealed(state) else ""
        return state, f"You move the {name} to the {target}.{seal_text}"

    def slice(self, state: State, name: str, knife: str) -> tuple[State, str]:
        index = self.objects.get(name, NOWHERE)
        if (
            index < 0
            or state.held < 0
            or self.game.objects[state.held] != knife
            or self.object_kinds[state.held] not in KNIVES
            or self.object_kinds[index] not in SLICEABLE
            or state.marks[index] & SLICED
            or state.places[index] != state.at
            or not self.reachable(state)
            or self.final[state.at]
        ):
            return state, NOTHING
        return (
            state._replace(marks=replace_at(state.marks, index, state.marks[index] | SLICED)),
            f"You sliced the {name} with the {knife}.",
        )

    def treat(self, verb: str) -> Callable[[State, str, str], tuple[State, str]]:
        """Make the action that heats, cools or cleans the held object with the device at this place, which may be
        closed."""
        bit, device_kind = TREATMENTS[verb]

        def act(state: State, name: str, device: str) -> tuple[State, str]:
            index, place = state.held, self.receptacles.get(device, NOWHERE)
            if (
                index < 0
                or self.game.objects[index] != name
                or place < 0
                or place != state.at
                or self.receptacle_kinds[place] != device_kind
                or self.object_kinds[index] not in TREATABLE[verb]
            ):
                return state, NOTHING
            mark = self.marked(state.marks[index], bit)
            text = f"You {verb} the {name} using the {device}."
            is_ruined = mark & RUINED and not state.marks[index] & RUINED
            return state._replace(
                marks=replace_at(state.marks, index, mark)
            ), f"{text} The {name} is ruined." if is_ruined else text

        return act

    def marked(self, mark: int, bit: int) -> int:
        """Compute an object's marks after a treatment. Hot and cool exclude each other; strictly, a second change
        ruins."""
        if not bit & (HOT | COOL):
            return mark | bit
        if self.game.strict and mark & (HOT | COOL):
            return mark | RUINED
        return mark & ~(HOT | COOL) | bit

    def sealed(self, state: State) -> bool:
        """Tell whether the box is full. In strict games it takes as many things as are wanted, and then the game is
        over."""
        if not self.game.strict:
            return False
        inside = sum(where >= 0 and self.receptacle_kinds[where] == self.game.target for where in state.places)
        return inside >= self.capacity


@lru_cache(maxsize=256)
def engine_of(payload: str) -> HouseholdEngine:
    """Read the rules of a task's game, shared by all its episodes in a process. Raise `WorldError` for a payload that
    is no game."""
    try:
        return HouseholdEngine(Game.from_json(payload))
    except (KeyError, TypeError, ValueError, json.JSONDecodeError) as error:
        raise WorldError(
            f"not a household game: {error!r} in payload {payload[:120]!r}; take tasks from HouseholdWorld.tasks"
        ) from error

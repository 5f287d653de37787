"""A short winning list of actions from any state of a household game, with everything in sight."""

from itertools import permutations, product

from r3l.environments.household.engine import HAND, NOTHING, HouseholdEngine, State
from r3l.environments.household.game import MARKS, TREATMENTS, Wanted
from r3l.environments.household.goal import instances, is_won, knives, meets, on_target, usable, winnable
from r3l.errors import WorldError

Errand = tuple[int, Wanted]  # an object, and as what it is wanted
VERB_OF = {bit: (verb, device) for verb, (bit, device) in TREATMENTS.items()}


def solve(engine: HouseholdEngine, state: State | None = None) -> list[str]:
    """Find the shortest of the plans that bring one object after the other; empty where the game is won.

    Raises:
        WorldError: the game can't be won from `state`.
    """
    start = engine.first if state is None else state
    if is_won(engine, start):
        return []
    if not winnable(engine, start):
        raise WorldError(f"this household game can't be won any more: {engine.game.task()}")
    plans = [ActionPlan(engine, start).deliver(errands) for errands in orders(engine, start)]
    return min(plans, key=len)


def orders(engine: HouseholdEngine, state: State) -> list[tuple[Errand, ...]]:
    """List every order of every choice of objects that still have to be brought."""
    choices = [list(wanted_choices(engine, state, goal)) for goal in engine.game.wanted]
    return [
        order for choice in product(*choices) for order in permutations([errand for some in choice for errand in some])
    ]


def wanted_choices(engine: HouseholdEngine, state: State, wanted: Wanted) -> list[tuple[Errand, ...]]:
    there = [i for i in instances(engine, wanted) if on_target(engine, state, i) and meets(state.marks[i], wanted)]
    missing = wanted.count - len(there)
    if missing <= 0:
        return [()]
    others = [i for i in instances(engine, wanted) if i not in there and usable(engine, state, i, wanted)]
    choices = {tuple(sorted(some)) for some in permutations(others, missing)}
    return [tuple((i, wanted) for i in some) for some in sorted(choices)]


class ActionPlan:
    """Actions, and the state they lead to. Every action is tried on the engine, so a plan can't be wrong."""

    def __init__(self, engine: HouseholdEngine, state: State) -> None:
        self.engine, self.state = engine, state
        self.actions: list[str] = []

    def act(self, action: str) -> None:
        self.state, text = self.engine.step(self.state, action)
        assert text != NOTHING, f"the solver's {action!r} does nothing"
        self.actions.append(action)

    def deliver(self, errands: tuple[Errand, ...]) -> list[str]:
        for index, goal in errands:
            if goal.marks & MARKS["sliced"] & ~self.state.marks[index]:
                self.slice(index)
            self.fetch(index)
            for bit, (verb, device) in VERB_OF.items():
                if goal.marks & bit & ~self.state.marks[index]:
                    place = self.first_of(device)
                    self.go(place)
                    self.act(f"{verb} {self.name(index)} with {self.place(place)}")
            self.drop_at(self.nearest(self.engine.game.target))
        return self.actions

    def slice(self, index: int) -> None:
        """Slice the object where it lies, with a knife in hand; the knife stays there."""
        at_hand = knives(self.engine, self.state)
        knife = self.state.held if self.state.held in at_hand else at_hand[0]
        self.fetch(knife)
        self.go(self.state.places[index])
        self.open()
        self.act(f"slice {self.name(index)} with {self.name(knife)}")
        self.act(f"move {self.name(knife)} to {self.place(self.state.at)}")

    def fetch(self, index: int) -> None:
        """Lay down what is held where the object lies, so that it can be taken again."""
        if self.state.held == index:
            return
        self.go(self.state.places[index])
        self.open()
        if self.state.held != HAND:
            self.act(f"move {self.name(self.state.held)} to {self.place(self.state.at)}")
        self.act(f"take {self.name(index)} from {self.place(self.state.at)}")

    def drop_at(self, place: int) -> None:
        self.go(place)
        self.open()
        self.act(f"move {self.name(self.state.held)} to {self.place(place)}")

    def go(self, place: int) -> None:
        if self.state.at != place:
            self.act(f"go to {self.place(place)}")

    def open(self) -> None:
        if not self.state.opened >> self.state.at & 1:
            self.act(f"open {self.place(self.state.at)}")

    def nearest(self, kind: str) -> int:
        """Find a receptacle of that kind: here, or open, or any."""
        places = [i for i, one in enumerate(self.engine.receptacle_kinds) if one == kind]
        return min(places, key=lambda place: (place != self.state.at, not self.state.opened >> place & 1))

    def first_of(self, kind: str) -> int:
        return self.engine.receptacle_kinds.index(kind)

    def name(self, index: int) -> str:
        return self.engine.game.objects[index]

    def place(self, place: int) -> str:
        return self.engine.game.receptacles[place]

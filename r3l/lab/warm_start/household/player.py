"""A player of household games that knows only what it has seen: for demonstrations, and to measure how long tasks take.

It looks into one place after another until something that is wanted is in sight, and brings that at once. With
`forgets` it leaves out treatments, confidently: the mistake that on level long can't be put right any more. With
`forgets_later` it does so more often the more it has brought, so that the mistakes come late.
"""

import random
from dataclasses import replace

from r3l.environments.household.engine import HAND, HouseholdEngine, State
from r3l.environments.household.game import MARKS, Wanted
from r3l.environments.household.goal import instances, knives, meets, on_target, over
from r3l.environments.household.solver import ActionPlan


class Player:
    """`act` names the next action, `observe` is told the state after it. `forgets` is the chance for each treatment,
    `forgets_later` is added to it for each thing of the kind that was brought before."""

    def __init__(
        self, engine: HouseholdEngine, rng: random.Random, forgets: float = 0.0, forgets_later: float = 0.0
    ) -> None:
        self.engine, self.rng = engine, rng
        self.forgets, self.forgets_later = forgets, forgets_later
        self.wanted = [self.remembered(one) for one in engine.game.wanted]
        self.order = engine.game.searched
        rng.shuffle(self.order)
        self.seen_places: set[int] = set()
        self.seen_objects: set[int] = set()
        self.state = engine.first

    def remembered(self, wanted: Wanted, number: int = 0) -> Wanted:
        chance = self.forgets + self.forgets_later * number
        return replace(wanted, conditions=tuple(one for one in wanted.conditions if self.rng.random() >= chance))

    def brought(self, wanted: Wanted, state: State) -> int:
        return sum(on_target(self.engine, state, i) for i in instances(self.engine, wanted))

    def observe(self, state: State) -> None:
        """Read the state. For several things of a kind, the player remembers or forgets the treatment of each one
        separately."""
        for place, true in enumerate(self.engine.game.wanted):
            if true.count > 1 and (number := self.brought(true, state)) > self.brought(true, self.state):
                self.wanted[place] = self.remembered(true, number)
        self.state = state
        if self.engine.reachable(state):
            self.seen_places.add(state.at)
            self.seen_objects |= {i for i, place in enumerate(state.places) if place == state.at}

    def act(self) -> str:
        """Choose the next step of the shortest errand it knows how to run, else of the search; "look" where nothing is
        left to do."""
        plans = [ActionPlan(self.engine, self.state).deliver(((index, wanted),)) for index, wanted in self.errands()]
        return min(plans, key=len)[0] if plans else self.search()

    def errands(self) -> list[tuple[int, Wanted]]:
        """List the objects in sight or in hand that it believes are still to be brought."""
        knife = any(i in self.seen_objects for i in knives(self.engine, self.state))
        todo = []
        for wanted in self.wanted:
            there = [
                i
                for i in instances(self.engine, wanted)
                if on_target(self.engine, self.state, i) and meets(self.state.marks[i], wanted)
            ]
            if len(there) >= wanted.count:
                continue
            todo += [
                (i, wanted)
                for i in instances(self.engine, wanted)
                if i in self.seen_objects
                and i not in there
                and self.can_be_had(i)
                and (knife or not wanted.marks & MARKS["sliced"] & ~self.state.marks[i])
            ]
        in_hand = [errand for errand in todo if errand[0] == self.state.held]
        return in_hand or todo

    def can_be_had(self, index: int) -> bool:
        place = self.state.places[index]
        return place == HAND or not self.engine.final[place]

    def search(self) -> str:
        """Go into the next place of its order that it has not seen open; with this one's door before any other."""
        at, names = self.state.at, self.engine.game.receptacles
        if at >= 0 and at not in self.seen_places:
            return f"open {names[at]}"
        unseen = [place for place in self.order if place not in self.seen_places and not self.engine.final[place]]
        return f"go to {names[unseen[0]]}" if unseen else "look"


def play(engine: HouseholdEngine, rng: random.Random, max_turns: int, forgets: float = 0.0) -> list[str]:
    """Play the actions of one episode, until it is over or the turns are."""
    player, actions = Player(engine, rng, forgets), list[str]()
    while len(actions) < max_turns and not over(engine, player.state):
        actions.append(player.act())
        player.observe(engine.step(player.state, actions[-1])[0])
    return actions

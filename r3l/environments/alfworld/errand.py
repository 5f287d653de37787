"""What a kitchen task asks for, and what the game's texts name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TREATMENT = {
    "pick_clean_then_place_in_recep": ("clean", "sinkbasin"),
    "pick_heat_then_place_in_recep": ("heat", "microwave"),
    "pick_cool_then_place_in_recep": ("cool", "fridge"),
}
KNOWN = {"pick_and_place_simple", *TREATMENT}  # the kinds of tasks that `Errand` reads
NAMED = re.compile(r"an? ([a-z]+ \d+)")
LISTED = re.compile(r"(?:On the [a-z]+ \d+|In it), you see (.*?)\.$", re.M)
TREATED = re.compile(r"You (?:heat|cool|clean) the ([a-z]+ \d+) using")


@dataclass(frozen=True, slots=True)
class Errand:
    """What a kitchen task asks for, in the game's words."""

    task_type: str
    target: str
    parent: str

    @classmethod
    def of(cls, task_type: str, about: Mapping[str, str]) -> Errand:
        """Read an errand from a game's `pddl_params`."""
        return cls(task_type, about["object_target"].lower(), about["parent_target"].lower())

    @property
    def treatment(self) -> tuple[str, str] | None:
        return TREATMENT.get(self.task_type)

    @property
    def plan(self) -> str:
        return f"{self.treatment[0] if self.treatment else 'put'} {self.target} to {self.parent}"


def kind(name: str) -> str:
    return name.split()[0]


def receptacles_in(first_observation: str) -> list[str]:
    return NAMED.findall(first_observation.split("Your task")[0])


MARKS = {"clean": "isclean", "heat": "ishot", "cool": "iscool"}  # facts of what was treated


@dataclass(frozen=True, slots=True)
class SubGoals:
    """An object that is wanted counts when it is fetched, when it is treated as asked, and when it then lies where it
    belongs; under a lamp, when it is held and when the lamp is on."""

    target: str  # kind of object
    parent: str  # kind of receptacle; empty: it is looked at under a lamp
    toggle: str  # kind of lamp
    mark: str  # fact of a treated object; empty: none is asked for
    count: int

    @classmethod
    def of(cls, task_type: str, about: Mapping[str, Any]) -> SubGoals:
        """Read the sub-goals from `about`, the game's `pddl_params`."""
        target, parent, toggle = (
            str(about[name]).lower() for name in ("object_target", "parent_target", "toggle_target")
        )
        mark = MARKS[TREATMENT[task_type][0]] if task_type in TREATMENT else ""
        return cls(target, parent, toggle, mark, 2 if "_two_" in task_type else 1)

    def share(self, facts: Mapping[Any, Any], won: bool) -> float:
        """Compute the share in [0, 1], 1 exactly where the game is won.

        Args:
            facts: textworld's propositions by signature.
        """
        if won:
            return 1.0
        state = {signature.name: propositions for signature, propositions in facts.items()}
        goals_reached = self._looking(state) if not self.parent else self._bringing(state)
        number = 2 if not self.parent else self.count * (3 if self.mark else 2)
        return min(goals_reached, number - 1) / number

    def _looking(self, state: Mapping[str, Any]) -> int:
        targets, lamps = (of_kind(state, "objecttype", kind) for kind in (self.target, self.toggle))
        in_hand = {thing for _, thing in names(state, "holds")}
        lit = {thing for (thing,) in names(state, "istoggled")}
        return bool(targets & in_hand) + bool(lamps & lit)

    def _bringing(self, state: Mapping[str, Any]) -> int:
        there = of_kind(state, "receptacletype", self.parent)
        at_parent = {thing for thing, place in names(state, "inreceptacle") if place in there}
        off_its_place = at_parent | {thing for _, thing in names(state, "holds")}
        with_mark = {thing for (thing,) in names(state, self.mark)}
        complete = at_parent & with_mark if self.mark else at_parent
        targets = of_kind(state, "objecttype", self.target)
        goals_reached = [(thing in off_its_place) + (thing in with_mark) + (thing in complete) for thing in targets]
        return sum(sorted(goals_reached)[-self.count :])


def of_kind(state: Mapping[str, Any], predicate: str, kind: str) -> set[str]:
    """Find the objects or receptacles of a kind."""
    return {thing for thing, its_kind in names(state, predicate) if its_kind == f"{kind}type"}


def names(state: Mapping[str, Any], predicate: str) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of the facts of a predicate."""
    for fact in state.get(predicate, ()):
        yield tuple(argument.name for argument in fact.arguments)

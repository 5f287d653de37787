"""What a kitchen task asks for, and what the game's texts name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

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

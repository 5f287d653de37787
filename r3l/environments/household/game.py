"""A household task: receptacles, objects, and what is wanted where. A game is data: its JSON is the payload of a
task."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["short", "easy", "standard", "long"]
CLEAN, HOT, COOL, SLICED, RUINED = 1, 2, 4, 8, 16  # marks of an object, a bit each
NUMBERS = ("no", "a", "two", "three", "four")
MARKS = {"clean": CLEAN, "hot": HOT, "cool": COOL, "sliced": SLICED}
TREATMENTS = {"clean": (CLEAN, "sinkbasin"), "heat": (HOT, "microwave"), "cool": (COOL, "fridge")}

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave"})
SURFACES = ("countertop", "diningtable", "shelf")  # of level short: where things lie and are brought to, all in sight
FINAL = frozenset({"box", "garbagecan"})  # on level long, what is put there stays there
KNIVES = frozenset({"knife", "butterknife"})
SLICEABLE = frozenset({"apple", "bread", "lettuce", "potato", "tomato"})
TREATABLE = {
    "clean": frozenset(
        {"apple", "bowl", "cup", "egg", "fork", "lettuce", "mug", "pan", "plate", "potato", "spoon", "tomato"}
    ),
    "heat": frozenset({"apple", "bread", "cup", "egg", "mug", "plate", "potato", "tomato"}),
    "cool": frozenset(
        {"apple", "bowl", "bread", "cup", "egg", "lettuce", "mug", "pan", "plate", "potato", "tomato", "winebottle"}
    ),
}
KINDS = sorted(frozenset.union(*TREATABLE.values()) | {"saltshaker", "peppershaker", "vase", "book", "creditcard"})


def kind_of(name: str) -> str:
    """Read the kind of an object: ``"mug 2"`` is a mug."""
    return name.partition(" ")[0]


def is_searched(level: Level, receptacle: str) -> bool:
    """Tell whether something may lie there: on level short nothing does but where it is in sight."""
    return level != "short" or kind_of(receptacle) in SURFACES


@dataclass(frozen=True, slots=True)
class Wanted:
    """`count` objects of a kind with these marks, e.g. one hot potato. Sliced ones count only where sliced ones are
    wanted."""

    kind: str
    conditions: tuple[str, ...]
    count: int = 1
    marks: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "marks", sum(MARKS[condition] for condition in self.conditions))

    def phrase(self) -> str:
        return " ".join([NUMBERS[self.count], *self.conditions, self.kind])


@dataclass(frozen=True, slots=True)
class Game:
    """`places[i]` is the index of the receptacle where object i lies at the start."""

    level: Level
    task_type: str
    receptacles: tuple[str, ...]
    objects: tuple[str, ...]
    places: tuple[int, ...]
    wanted: tuple[Wanted, ...]
    target: str  # a kind of receptacle

    @property
    def strict(self) -> bool:
        """Tell whether some acts can't be undone: a second change of temperature, the box, the garbage can."""
        return self.level == "long"

    @property
    def searched(self) -> list[int]:
        """List the receptacles where something may lie."""
        return [i for i, name in enumerate(self.receptacles) if is_searched(self.level, name)]

    def task(self) -> str:
        return f"put {list_in_words([goal.phrase() for goal in self.wanted])} in {self.target}."

    def sources(self) -> list[str]:
        """List the kinds of receptacle where the wanted objects lie, one per object."""
        kinds = {goal.kind for goal in self.wanted}
        return sorted(
            f"{kind_of(name)}<{kind_of(self.receptacles[place])}"
            for name, place in zip(self.objects, self.places, strict=True)
            if kind_of(name) in kinds
        )

    def key(self) -> str:
        """Name what makes two tasks the same errand; the splits share no key."""
        return f"{self.task()} {' '.join(self.sources())}"

    def to_json(self) -> str:
        return json.dumps(
            {
                "level": self.level,
                "task_type": self.task_type,
                "receptacles": self.receptacles,
                "objects": {
                    name: self.receptacles[place] for name, place in zip(self.objects, self.places, strict=True)
                },
                "wanted": [[one.kind, list(one.conditions), one.count] for one in self.wanted],
                "target": self.target,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Game:
        """Read a game. Raise `KeyError`, `TypeError` or `ValueError` where `text` is none."""
        fields = json.loads(text)
        receptacles = tuple(fields["receptacles"])
        return cls(
            level=fields["level"],
            task_type=fields["task_type"],
            receptacles=receptacles,
            objects=tuple(fields["objects"]),
            places=tuple(receptacles.index(place) for place in fields["objects"].values()),
            wanted=tuple(Wanted(kind, tuple(conditions), count) for kind, conditions, count in fields["wanted"]),
            target=fields["target"],
        )


def list_in_words(phrases: list[str]) -> str:
    """Write a list in ALFWorld's form: "a cup 1, a mug 2, and a pan 1"; "nothing" if there is none."""
    if len(phrases) > 1:
        return f"{', '.join(phrases[:-1])}, and {phrases[-1]}"
    return phrases[0] if phrases else "nothing"

"""A scripted player of kitchen tasks. It searches a room in the order of its listing and reads only what a policy would
read.

With `skip` it has a confident habit that loses every heat, cool and clean task: it never treats what it found before
placing it. Each of its thoughts repeats the plan, so that a small model needs no long-range recall to follow it.
"""

import random
import re
from dataclasses import dataclass, field

from r3l.environments.alfworld.errand import LISTED, NAMED, TREATED, Errand, kind

ARRIVED = re.compile(r"You arrive at ([a-z]+ \d+)\.")
CLOSED = re.compile(r"The ([a-z]+ \d+) is closed\.")
OPENED = re.compile(r"You open the ([a-z]+ \d+)")
TOOK = re.compile(r"You pick up the ([a-z]+ \d+) from the ([a-z]+ \d+)")
PLACED = re.compile(r"You move the ([a-z]+ \d+) to the ([a-z]+ \d+)")
WANDERS = 0.03  # how often the search leaves its order


@dataclass
class Searcher:
    errand: Errand
    receptacles: list[str]
    rng: random.Random
    skip: bool
    here: str = ""
    holding: str = ""
    closed: set[str] = field(default_factory=set)
    contents: dict[str, list[str]] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)  # what the last observation named
    treated: set[str] = field(default_factory=set)
    placed: set[str] = field(default_factory=set)

    def observe(self, text: str) -> None:
        """Read the game's answer to the last action."""
        if match := ARRIVED.match(text):
            self.here = match[1]
        if match := CLOSED.search(text):
            self.closed.add(match[1])
        if match := OPENED.match(text):
            self.closed.discard(match[1])
        match = LISTED.search(text)
        self.listed = NAMED.findall(match[1]) if match else []
        if match:
            self.contents[self.here] = list(self.listed)
        if match := TREATED.match(text):
            self.treated.add(match[1])
        self.observe_hands(text)

    def observe_hands(self, text: str) -> None:
        if match := TOOK.match(text):
            self.holding = match[1]
            self.contents[match[2]] = [name for name in self.contents.get(match[2], []) if name != match[1]]
            self.placed.discard(match[1])
        if match := PLACED.match(text):
            self.holding = ""
            self.contents.setdefault(match[2], []).append(match[1])
            self.placed.add(match[1])

    def act(self) -> tuple[str, str]:
        """Choose (thought, action)."""
        thinking, action = self.carry() if self.holding and kind(self.holding) == self.errand.target else self.seek()
        return f"{self.errand.plan}: {thinking}", action

    def carry(self) -> tuple[str, str]:
        treatment = self.errand.treatment
        if treatment and not self.skip and self.holding not in self.treated:
            device = self.first(treatment[1])
            at_device = f"{treatment[0]} {self.holding} with {device}"
            return f"have {self.holding}. {treatment[0]} it.", at_device if self.here == device else f"go to {device}"
        thinking, parent = f"have {self.holding}. place it.", self.first(self.errand.parent)
        if self.here != parent:
            return thinking, f"go to {parent}"
        return thinking, f"open {parent}" if parent in self.closed else f"move {self.holding} to {parent}"

    def seek(self) -> tuple[str, str]:
        careful = self.errand.treatment is not None and not self.skip
        delivered_names = self.placed & self.treated if careful else self.placed
        if delivered_names:
            return self.idle()
        for receptacle, names in self.contents.items():
            for name in names:
                if kind(name) == self.errand.target:
                    there = self.here == receptacle
                    return (
                        f"{self.look()}yes, {name}.",
                        f"take {name} from {receptacle}" if there else f"go to {receptacle}",
                    )
        return self.search()

    def search(self) -> tuple[str, str]:
        unseen = [receptacle for receptacle in self.receptacles if receptacle not in self.contents]
        if not unseen:
            return self.idle()
        if self.here in self.closed and self.here in unseen:
            return f"{self.look()}no.", f"open {self.here}"
        if self.rng.random() < WANDERS:
            return f"{self.look()}no.", f"go to {self.rng.choice(unseen)}"
        at = self.receptacles.index(self.here) + 1 if self.here in self.receptacles else 0
        return (
            f"{self.look()}no.",
            f"go to {next(item for item in self.receptacles[at:] + self.receptacles[:at] if item in unseen)}",
        )

    def look(self) -> str:
        """Say what the last observation lists, up to the target: copied one by one, each name is compared with the
        plan's where both stand in the same thought. Without it a small model never learned to tell whether the target
        is there."""
        names = [kind(name) for name in self.listed]
        names_shown = self.listed[: names.index(self.errand.target) + 1] if self.errand.target in names else self.listed
        return f"see {', '.join(names_shown)}. " if names_shown else ""

    def idle(self) -> tuple[str, str]:
        return "done.", self.rng.choice(("inventory", "inventory", "look"))

    def first(self, wanted: str) -> str:
        """Find the first receptacle of that kind; the game's goal guarantees that there is one."""
        return next(receptacle for receptacle in self.receptacles if kind(receptacle) == wanted)

"""Episodes of environments that are Python objects: a snapshot is a deep copy, and copies are held against a replay.

Such an environment may keep something of an episode where no copy reaches it: in its module, in a file, in a process.
So the first copies that are played on are played on twice, beside an episode that took the same actions again. Where
the two answer differently, no copy is made any more: rollbacks take the actions again.
"""

from __future__ import annotations

import logging
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from r3l.environments.base import Observation, Step
from r3l.errors import WorldError
from r3l.records import Task

CHECKED = 3  # copies that are held against a replay, of each environment in each worker
SEEDS = 2**32  # what numpy takes
log = logging.getLogger(__name__)


@dataclass
class Copies:
    """What is known of the copies of an environment: shared by all its episodes in a process. `why`: why they are not
    exact, "" where no reason is known."""

    checked: int = 0
    why: str = ""

    def distrust(self, why: str) -> None:
        self.why = why
        log.warning("no copies of episodes are made, rollbacks take the actions again: %s", why)


@dataclass
class Draws:
    """The random numbers of an episode: the state of Python's and numpy's global generators after its last call."""

    python: Any
    numpy: Any = None

    @classmethod
    def seeded(cls, seed: int) -> Draws:
        numpy = sys.modules.get("numpy")
        return cls(
            random.Random(seed).getstate(), numpy.random.RandomState(seed % SEEDS).get_state() if numpy else None
        )

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let everything that draws from the global generators meanwhile draw this episode's numbers."""
        numpy = sys.modules.get("numpy") if self.numpy is not None else None
        outer = random.getstate(), numpy.random.get_state() if numpy else None
        random.setstate(self.python)
        if numpy:
            numpy.random.set_state(self.numpy)
        try:
            yield
        finally:
            if (state := random.getstate()) != self.python:  # else the snapshots share one state
                self.python = state
            random.setstate(outer[0])
            if numpy:
                self.numpy = numpy.random.get_state()
                numpy.random.set_state(outer[1])


@dataclass
class Played:
    """An episode: `state` is the environment's own, `observations[k]` came before `actions[k]`."""

    task: Task
    state: Any
    draws: Draws
    observations: list[str]
    actions: list[str] = field(default_factory=list)


class CopiedEnvironment(ABC):
    """An `Environment` whose state is a Python object that can be copied."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.played: Played | None = None
        self.unproven = False  # whether it goes on from a copy that nothing was held against yet

    @abstractmethod
    def begin(self, task: Task) -> tuple[Any, Observation]:
        """Make a fresh state of `task` and what is seen first. Raise `WorldError` where the task does not exist."""

    @abstractmethod
    def act(self, state: Any, action: str) -> Step:
        """Change `state` by one action."""

    def reset(self, task: Task) -> Observation:
        self.played, opening = self.begun(task)
        self.unproven = False
        return opening

    def step(self, action: str) -> Step:
        if self.played is None:
            raise WorldError("step before reset")
        if self.unproven:
            return self.proven_step(self.played, action)
        return self.taken(self.played, action)

    def snapshot(self) -> Played | None:
        """Copy the episode; None where copies are not exact, or the state can't be copied."""
        if self.copies.why or self.played is None:
            return None
        try:
            return deepcopy(self.played)
        except Exception as error:  # noqa: BLE001 - anything may come out of copying an object of others
            self.copies.distrust(f"{type(error).__name__}: {error}")
            return None

    def restore(self, handle: object) -> None:
        """Restore the snapshot. Raise `WorldError` if copies are not exact and the actions, taken again, lead
        elsewhere."""
        if not isinstance(handle, Played):
            raise WorldError(f"restore needs a handle of snapshot(), got {type(handle).__name__}")
        if self.copies.why:
            self.played, self.unproven = self.replayed(handle), False
            return
        self.played = deepcopy(handle)
        self.unproven = self.copies.checked < CHECKED and bool(handle.actions)

    def close(self) -> None:
        self.played = None

    def begun(self, task: Task) -> tuple[Played, Observation]:
        draws = Draws.seeded(task.seed)
        with draws.in_use():
            state, opening = self.begin(task)
        return Played(task, state, draws, [opening.text]), opening

    def taken(self, played: Played, action: str) -> Step:
        with played.draws.in_use():
            step = self.act(played.state, action)
        played.actions.append(action)
        played.observations.append(step.observation.text)
        return step

    def proven_step(self, copied: Played, action: str) -> Step:
        """Take a step with a copy and with a replay. Where they differ, copies are given up and another replay goes
        on."""
        self.unproven = False
        before = replace(copied, actions=list(copied.actions), observations=list(copied.observations))
        try:
            again = self.replayed(before)
        except WorldError as error:
            log.warning("a copy could not be held against a replay: %s", error)
            return self.taken(copied, action)
        step = self.taken(copied, action)
        if step == self.taken(again, action):
            self.copies.checked += 1
            return step
        self.copies.distrust(f"after {len(before.actions)} actions of {before.task.task_id} a copy answered otherwise")
        self.played = self.replayed(before)
        return self.taken(self.played, action)

    def replayed(self, played: Played) -> Played:
        """Play the same episode again by its actions. Raise `WorldError` where it reads otherwise."""
        fresh, _ = self.begun(played.task)
        for action in played.actions:
            if fresh.observations[-1] != played.observations[len(fresh.actions)]:
                break
            self.taken(fresh, action)
        if fresh.observations != played.observations:
            turn = next(k for k, text in enumerate(fresh.observations) if text != played.observations[k])
            raise WorldError(
                f"{played.task.task_id}: the same actions gave another observation at turn {turn}: the environment "
                "draws numbers that its seed does not set"
            )
        return fresh

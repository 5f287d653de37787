"""One loaded ALFWorld game: alfworld's and textworld's own engine, with snapshots by the planner's state ids."""

import contextlib
import copy
import io
import sys
import weakref
from collections import defaultdict
from collections.abc import Mapping, Set
from ctypes import c_int
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from r3l.environments.alfworld.parsing import IDLE_LIBRARIES, libraries_again, translated_once
from r3l.errors import WorldError

D = TypeVar("D", bound=dict[Any, Any])


@dataclass(frozen=True, slots=True)
class Seen:
    """What the engine shows after a command."""

    text: str
    admissible: tuple[str, ...]
    won: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state id of the planner's registry, and what textworld keeps beside it. Workers keep thousands of these: what
    the state before had too is shared with it, and the actions, most of a state in textworld, are asked of the planner
    again.
    """

    state_id: int
    facts: dict[Any, frozenset[Any]]
    variables: dict[str, Any]
    variables_by_type: dict[str, frozenset[Any]]
    counts: dict[Any, int]
    commands: tuple[str, ...]  # in the planner's order of actions
    moves: int


class GameEngine:
    """Loads a game once; every episode starts by restoring its first state. Not thread-safe: one process, one thread.

    Raises:
        WorldError: the game file can't be read or loaded.
    """

    def __init__(self, path: Path) -> None:
        try:
            with libraries_again():
                self.env = wrapped_environment()
            with translated_once(), contextlib.redirect_stdout(io.StringIO()):
                self.env.load(str(path))
                state = self.env.reset()
        # the translator exits on a bad problem
        except (OSError, ValueError, KeyError, AssertionError, SystemExit) as error:
            raise WorldError(
                f"ALFWorld game {path} can't be loaded: {error!r}; make it again with `r3l prepare alfworld`"
            ) from error
        self.core = innermost(self.env)
        self.library = self.core._pddl_state.downward_lib
        self.library.get_state_id.argtypes, self.library.get_state_id.restype = [], c_int
        self.library.set_state_id.argtypes, self.library.set_state_id.restype = [c_int], None
        weakref.finalize(self, IDLE_LIBRARIES.append, self.library).atexit = False
        self.first = without_banner(state)
        self.before: Snapshot | None = None  # where it stood last, to share with
        self.start = self.snapshot()

    def reset(self) -> Seen:
        self.restore(self.start)
        return self.first

    def step(self, command: str) -> Seen:
        return without_banner(self.env.step(command)[0])

    def facts(self) -> dict[Any, set[Any]]:
        """Read textworld's propositions by signature, as they stand."""
        facts: dict[Any, set[Any]] = self.core._pddl_state._facts
        return facts

    def snapshot(self) -> Snapshot:
        facts, before = self.core._pddl_state, self.before
        self.before = Snapshot(
            self.library.get_state_id(),
            frozen_sets(facts._facts, before.facts if before else {}),
            share_fields(facts._vars_by_name, before.variables) if before else dict(facts._vars_by_name),
            frozen_sets(facts._vars_by_type, before.variables_by_type if before else {}),
            share_fields(facts._var_counts, before.counts) if before else copy.copy(facts._var_counts),
            tuple(map(sys.intern, self.core.state["_valid_commands"])),
            self.core._moves,
        )
        return self.before

    def restore(self, snapshot: Snapshot) -> None:
        facts = self.core._pddl_state
        self.library.set_state_id(snapshot.state_id)
        facts._facts = defaultdict(set, {key: set(values) for key, values in snapshot.facts.items()})
        facts._vars_by_name = dict(snapshot.variables)
        facts._vars_by_type = defaultdict(set, {key: set(values) for key, values in snapshot.variables_by_type.items()})
        facts._var_counts = copy.copy(snapshot.counts)
        self.core.state = type(self.core.state)(
            _valid_commands=list(snapshot.commands), _valid_actions=facts.all_applicable_actions()
        )
        self.core._moves, self.before = snapshot.moves, snapshot


def wrapped_environment() -> Any:
    """Build the wrapper chain of ALFWorld's text environment, with names numbered in a fixed order."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos

    infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    return AlfredInfos(AlfredDemangler(game_class()(infos), shuffle=False))


@cache
def game_class() -> Any:
    """Make textworld's game, which after each step gathers what is read here alone, and words each command once."""
    from textworld.envs import PddlEnv

    class Game(PddlEnv):  # type: ignore[misc]
        def load(self, path: str) -> None:
            self.commands: dict[tuple[str, ...], str] = {}
            super().load(path)

        def _gather_infos(self) -> None:
            state, actions = self.state, self._pddl_state.all_applicable_actions()
            state["won"], state["lost"] = self._pddl_state.check_goal(), False
            state["_valid_actions"], state["_valid_commands"] = actions, list(map(self.command, actions))
            state["admissible_commands"] = sorted(set(state["_valid_commands"]))

        def command(self, action: Any) -> str:
            # of facts, the templates ask where receptacles stand alone, and those never move
            key = (action.name, *(thing.name for thing in action.mapping.values()))
            if key not in self.commands:
                infos = self._entity_infos
                variables = {placeholder.name: infos[thing.name] for placeholder, thing in action.mapping.items()}
                context = {"state": self._pddl_state, "facts": [], "variables": variables}
                context |= {"mapping": action.mapping, "entity_infos": infos}
                action.command_template = self._logic.grammar.derive(action.command_template, context)
                self.commands[key] = action.format_command({id_: info.name for id_, info in infos.items()})
            return self.commands[key]

    return Game


def innermost(env: Any) -> Any:
    while hasattr(env, "_wrapped_env"):
        env = env._wrapped_env
    return env


def frozen_sets(sets: Mapping[Any, Set[Any]], before: dict[Any, frozenset[Any]]) -> dict[Any, frozenset[Any]]:
    """Freeze the new values, with the old object in place of each equal one; the old collection if nothing changed."""
    new_sets = {
        key: old_set if (old_set := before.get(key)) == values else frozenset(values) for key, values in sets.items()
    }
    return share_fields(new_sets, before)


def share_fields(new: D, before: D) -> D:
    """Choose `before` where it says the same in the same order, else a copy of `new`."""
    return before if new == before and list(new) == list(before) else copy.copy(new)


def without_banner(state: Any) -> Seen:
    """Cut the engine's banner, which says nothing about the task, off an observation."""
    text = state.feedback.split("=-", 1)[-1] if state.feedback.startswith("-=") else state.feedback
    return Seen(text.strip(), tuple(state["admissible_commands"]), bool(state["won"]))

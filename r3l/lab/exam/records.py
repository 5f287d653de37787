"""What an exam keeps: the trajectories of a group, the states they passed, and what was played from each state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from r3l.credit.advantages import Floats
from r3l.records import Episode, Trajectory, Turn


class State(NamedTuple):
    """What stands before turn `turn` of a trajectory: the first one of its group that came there."""

    trajectory_id: str
    turn: int


@dataclass(frozen=True, slots=True)
class Continuation:
    """One episode that was played on from a state."""

    group_id: str
    trajectory_id: str
    turn: int
    number: int
    seed: int
    status: str
    reason: str
    reward: float
    success: bool
    turns: int
    response_tokens: int

    @property
    def place(self) -> tuple[State, int]:
        return State(self.trajectory_id, self.turn), self.number


@dataclass(frozen=True, slots=True)
class Group:
    """An exploration group under examination: of member g its K_g turns, and the state before each of them.

    Attributes:
        rewards: of each state, number of a continuation to its reward; only those that ended by themselves.
        oracle: failed base to the turn that the environment's oracle names.
        products: of the gradients of the D different turns' replies, shape [D, D]; empty where they were not made.
        gaps: teacher (`success`, `guidance`) to log pi_T - log pi of each token, for each turn of each member that it
            teaches.
    """

    members: Sequence[Trajectory]
    turns: Sequence[Sequence[Turn]]
    states: Sequence[Sequence[State]]
    rewards: Mapping[State, Mapping[int, float]] = field(default_factory=dict)
    oracle: Mapping[str, int] = field(default_factory=dict)
    products: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    gaps: Mapping[str, Mapping[str, Sequence[Sequence[float]]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exam:
    """The groups of one run's iteration, and the settings under which they were played on."""

    settings: Mapping[str, str | int]
    groups: Sequence[Group]

    @property
    def name(self) -> str:
        return str(self.settings["run"])


def states_of(episodes: Sequence[Episode]) -> list[list[State]]:
    """Name the state before each turn of a group's trajectories, by whichever came there first.

    A state is the token ids before a reply: they hold every observation and every action. Bases of a group begin in the
    same one, and what a stitched trajectory keeps of its base it does not pass a second time.
    """
    first: dict[tuple[int, ...], State] = {}
    states: list[list[State]] = []
    for episode in episodes:
        ids: tuple[int, ...] = ()
        own: list[State] = []
        for turn in episode.turns:
            ids += tuple(turn.context_ids)
            own.append(first.setdefault(ids, State(turn.trajectory_id, turn.turn)))
            ids += tuple(turn.response_ids)
        states.append(own)
    return states


def different_turns(turns: Sequence[Sequence[Turn]], states: Sequence[Sequence[State]]) -> list[list[int]]:
    """Number the different turns of a group in the order in which they come, of each member its own: the same reply in
    the same state is one turn, whoever took it."""
    places: dict[tuple[State, tuple[int, ...]], int] = {}
    return [
        [places.setdefault((state, tuple(turn.response_ids)), len(places)) for turn, state in zip(*pair, strict=True)]
        for pair in zip(turns, states, strict=True)
    ]

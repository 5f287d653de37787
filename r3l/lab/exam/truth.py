"""What turns were worth: values of states by their continuations, and how sure these are.

Continuations 0 to VINE - 1 of every state are for methods that play on themselves (VinePPO); the truth is made of the
others, so that no method is examined on what it has seen.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from r3l.credit.advantages import Floats
from r3l.lab.exam.records import Group, State

VINE = 3
Part = Callable[[int], bool]  # tells which numbers of continuations are read


def whole(number: int) -> bool:
    return number >= VINE


def even(number: int) -> bool:
    return number >= VINE and (number - VINE) % 2 == 0


def odd(number: int) -> bool:
    return number >= VINE and (number - VINE) % 2 == 1


def value(group: Group, state: State, part: Part = whole) -> float:
    """Average the reward of a state's continuations; NaN where it has none."""
    rewards = [reward for number, reward in group.rewards.get(state, {}).items() if part(number)]
    return float(np.mean(rewards)) if rewards else float("nan")


def true_advantages(group: Group, part: Part = whole) -> list[Floats]:
    """Compute what each turn of each member gained, shape [K_g]: the value after it less the value before it. After the
    last turn stands the reward that the trajectory got."""
    gains = []
    for member, states in zip(group.members, group.states, strict=True):
        values = [*(value(group, state, part) for state in states), member.reward]
        gains.append(np.array([after - before for before, after in pairwise(values)]))
    return gains


def reliability(groups: Sequence[Group], measure: Callable[[Floats], Floats] = np.asarray) -> float:
    """Correlate the advantages by one half of the continuations with those by the other, over all different turns, and
    correct for the halves being halves (Spearman and Brown): 2 r / (1 + r). `measure` may take their ranks."""
    halves = [np.concatenate([one for group in groups for one in unique(group, part)]) for part in (even, odd)]
    sure = ~np.isnan(halves[0]) & ~np.isnan(halves[1])
    if sure.sum() < 2 or not all(half[sure].std() for half in halves):
        return 0.0
    r = float(np.corrcoef([measure(half[sure]) for half in halves])[0, 1])
    return 2 * r / (1 + r)


def unique(group: Group, part: Part) -> list[Floats]:
    """Leave out the turns that a trajectory keeps of another, whose truth would be counted twice."""
    kept = [
        next((k for k, state in enumerate(states) if state.trajectory_id == member.trajectory_id), len(states))
        for member, states in zip(group.members, group.states, strict=True)
    ]
    # the turn that leads into a member's first own state is its own, too: another reply in a shared state
    return [gains[max(first - 1, 0) :] for gains, first in zip(true_advantages(group, part), kept, strict=True)]

"""The turn where an episode of the household world went wrong, by its states: what a perfect reflector would name."""

from collections.abc import Sequence

from r3l.environments.base import Verdict
from r3l.environments.household.engine import NOTHING, HouseholdEngine, State, engine_of
from r3l.environments.household.goal import instances, is_won, progress, usable, winnable
from r3l.environments.household.solver import solve
from r3l.records import Task


def oracle_pivot(task: Task, actions: Sequence[str]) -> Verdict:
    """Judge an episode by its actions, "" for a turn without a valid one. It takes one solver call per turn, about 1
    ms.

    why: won; lost (that turn made the goal unreachable); wasted (the first needless turn after the last sub-goal);
    slow (every turn was of use, the turns ran out).
    """
    engine = engine_of(task.payload)
    states, texts = replay(engine, actions)
    if is_won(engine, states[-1]):
        return Verdict(None, "won")
    losing_turn = next((k for k in range(len(actions)) if not winnable(engine, states[k + 1])), None)
    if losing_turn is not None:
        return Verdict(losing_turn, "lost")
    useful_turns = last_gain([progress(engine, state) for state in states])
    for k in range(useful_turns, len(actions)):
        if needless(engine, states[k], states[k + 1], explores(engine, states, texts, k)):
            return Verdict(k, "wasted")
    return Verdict(min(useful_turns, max(0, len(actions) - 1)), "slow")


def replay(engine: HouseholdEngine, actions: Sequence[str]) -> tuple[list[State], list[str]]:
    """Play the actions again: states before and after every turn (one more than actions), and what each action was
    answered with."""
    states, texts = [engine.first], []
    for action in actions:
        state, text = engine.step(states[-1], action) if action else (states[-1], NOTHING)
        states.append(state)
        texts.append(text)
    return states, texts


def last_gain(shares: Sequence[float]) -> int:
    """Count the leading turns up to the last one that reached a sub-goal that was never reached before; 0 for none."""
    best, turns = shares[0], 0
    for k, share in enumerate(shares[1:], 1):
        if share > best:
            best, turns = share, k
    return turns


def needless(engine: HouseholdEngine, before: State, after: State, searching: bool) -> bool:
    """Tell whether a turn neither shortened the way to the goal nor looked into a new place while something was still
    to be found."""
    return not searching and len(solve(engine, after)) >= len(solve(engine, before))


def explores(engine: HouseholdEngine, states: Sequence[State], texts: Sequence[str], turn: int) -> bool:
    """Tell whether turn `turn` showed a place for the first time, or stood first before a closed one, while an object
    was unseen."""
    place = states[turn + 1].at
    if place < 0 or states[turn + 1] == states[turn] or not unseen(engine, states[: turn + 1]):
        return False
    now_open = states[turn + 1].opened >> place & 1
    been = any(state.at == place and (state.opened >> place & 1) >= now_open for state in states[: turn + 1])
    return not been


def unseen(engine: HouseholdEngine, states: Sequence[State]) -> bool:
    """Tell whether too few of the wanted objects have been seen so far: lying open before the agent, or in hand."""
    objects_seen = objects_shown(states)
    return any(
        sum(i in objects_seen for i in instances(engine, goal) if usable(engine, states[-1], i, goal)) < goal.count
        for goal in engine.game.wanted
    )


def objects_shown(states: Sequence[State]) -> set[int]:
    """Find the objects that an episode has seen: lying open before the agent, or in hand."""
    return {
        i
        for state in states
        for i, place in enumerate(state.places)
        if i == state.held or (place >= 0 and place == state.at and state.opened >> place & 1)
    }

"""What a perfect reflector would write about an episode of the household world, in the paper's JSON keys.

It judges by the states of the game, yet names only what the episode itself has shown: no object's place is given away.
Each part follows from what stands before it (the task, the last useful turn, what is missing, the turn after), so that
a small policy can learn to write it.
"""

from collections.abc import Sequence
from typing import Any

from r3l.environments.base import Verdict, report
from r3l.environments.household.engine import HAND, HouseholdEngine, State, engine_of
from r3l.environments.household.game import MARKS, TREATMENTS, Wanted, kind_of
from r3l.environments.household.goal import instances, meets, on_target, usable
from r3l.environments.household.oracle import explores, needless, objects_shown, oracle_pivot, replay
from r3l.records import Task

WASTED_TURNS = 4  # from here on a success counts as inefficient
VERB_OF = {mark: verb for verb, (mark, _) in TREATMENTS.items()}


def reflect(task: Task, actions: Sequence[str], verdict: Verdict | None = None) -> dict[str, Any]:
    """Write the report on an episode, given by its actions ("" for a turn without a valid one). `verdict`: the
    oracle's, where it has been asked already."""
    engine = engine_of(task.payload)
    verdict = verdict or oracle_pivot(task, actions)
    if verdict.pivot is None:
        return success_report(engine, actions)
    states, _ = replay(engine, actions[: verdict.pivot])
    if verdict.why == "lost":
        losing_action = actions[verdict.pivot]
        cause, advice = unrecoverable(engine, states[-1], losing_action)
        what = f"{losing_action} at turn {verdict.pivot} can't be undone."
    else:
        cause, advice = next_step(engine, states)
        what = useful(actions, verdict.pivot)
    return report(f"Asked: {engine.game.task()} {what}", cause, "failure", advice, verdict.pivot)


def success_report(engine: HouseholdEngine, actions: Sequence[str]) -> dict[str, Any]:
    states, texts = replay(engine, actions)
    needless_turns = [
        k for k in range(len(actions)) if needless(engine, states[k], states[k + 1], explores(engine, states, texts, k))
    ]
    if len(needless_turns) < WASTED_TURNS:
        return report("Everything asked for is in its place.", "No mistake.", "success", "Keep this plan.", 0)
    return report(
        f"Everything asked for is in its place, after {len(needless_turns)} turns that were of no use.",
        f"Turn {needless_turns[0]} was the first of them.",
        "success_but_inefficient",
        "Do only what the task needs.",
        needless_turns[0],
    )


def useful(actions: Sequence[str], pivot: int) -> str:
    """Say up to which action before the pivot the attempt was of use, where nothing was lost for good."""
    return (
        f"Of use until {actions[pivot - 1] or 'no valid action'} at turn {pivot - 1}."
        if pivot
        else "Nothing was of use."
    )


def unrecoverable(engine: HouseholdEngine, before: State, action: str) -> tuple[str, str]:
    """Give cause and advice for the action after which the game can't be won."""
    verb, kind, number, *_, place, _ = action.split()
    thing = f"{kind} {number}"
    index = engine.objects[thing]
    goal = next((one for one in engine.game.wanted if one.kind == kind), None)
    if verb == "slice":
        return f"{thing} is asked for whole.", f"Do not slice {thing}."
    if verb in TREATMENTS:
        return (
            f"{thing} was to be {' and '.join(goal.conditions)}." if goal else "It was not asked for.",
            f"Do not {verb} {thing}.",
        )
    if goal is None or place != engine.game.target:
        return f"{thing} can't be taken out of the {place}.", f"Do not move {thing} to the {place}."
    if meets(before.marks[index], goal):
        return f"The {place} has no room for two of {kind}.", f"Do not move {thing} to the {place}."
    missing = missing_steps(engine, before, index, goal)
    return f"{thing} was moved too early.", f"First {' and '.join(missing)}, then {action}."


def missing_steps(engine: HouseholdEngine, state: State, index: int, wanted: Wanted) -> list[str]:
    """List what still has to be done to an object, as commands."""
    thing, steps = engine.game.objects[index], []
    for condition in wanted.conditions:
        mark = MARKS[condition]
        if state.marks[index] & mark:
            continue
        if mark in VERB_OF:
            verb = VERB_OF[mark]
            steps.append(f"{verb} {thing} with {first_of(engine, TREATMENTS[verb][1])}")
        else:
            steps.append(f"slice {thing} with a knife")
    return steps


def next_step(engine: HouseholdEngine, states: Sequence[State]) -> tuple[str, str]:
    """Give cause and advice if nothing is lost: the first thing asked for that is not delivered."""
    state, objects_seen = states[-1], objects_shown(states)
    for goal in engine.game.wanted:
        there = [i for i in instances(engine, goal) if on_target(engine, state, i) and meets(state.marks[i], goal)]
        if len(there) >= goal.count:
            continue
        rest = [
            i
            for i in instances(engine, goal)
            if i not in there and i in objects_seen and usable(engine, state, i, goal)
        ]
        in_hand = [i for i in rest if state.places[i] == HAND]
        if not rest:
            return f"No {goal.kind} was found.", f"Look for {goal.kind} in every place that was not looked into."
        index = (in_hand or rest)[0]
        missing = [condition for condition in goal.conditions if not state.marks[index] & MARKS[condition]]
        cause = f"is not {' and '.join(missing)}" if missing else "was not brought"
        return f"{engine.game.objects[index]} {cause}.", advice_for(engine, state, index, goal)
    return "The turns ran out.", "Do only what the task needs."


def advice_for(engine: HouseholdEngine, state: State, index: int, wanted: Wanted) -> str:
    thing, place = engine.game.objects[index], state.places[index]
    fetch = [] if place == HAND else [f"take {thing} from {engine.game.receptacles[place]}"]
    steps = [
        *fetch,
        *missing_steps(engine, state, index, wanted),
        f"move {thing} to {first_of(engine, engine.game.target)}",
    ]
    return f"{', then '.join(steps).capitalize()}."


def first_of(engine: HouseholdEngine, kind: str) -> str:
    return next(name for name in engine.game.receptacles if kind_of(name) == kind)

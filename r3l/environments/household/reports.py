"""What a perfect reflector would write about an episode of the household world, in the paper's JSON keys.

It judges by the states of the game, yet names only what the episode itself has shown: no object's place is given away.
Each part follows from what stands before it (the task, the last useful turn, what is missing, the turn after), so that
a small policy can learn to write it.
"""

from collections.abc import Sequence
from typing import Any

from r3l.environments.base import Verdict
from r3l.environments.household.engine import HAND, HouseholdEngine, State
from r3l.environments.household.game import MARKS, TREATMENTS, Wanted, kind_of
from r3l.environments.household.goal import instances, meets, on_target, usable
from r3l.environments.household.oracle import explored, needless, oracle_pivot, replay, shown
from r3l.environments.household.world import engine_of
from r3l.records import Task

WASTED_TURNS = 4  # from here on a success counts as inefficient
VERB_OF = {mark: verb for verb, (mark, _) in TREATMENTS.items()}


def reflect(task: Task, actions: Sequence[str], verdict: Verdict | None = None) -> dict[str, Any]:
    """Return the report on an episode, given by its actions ("" for a turn without a valid one). `verdict`: the
    oracle's, where it has been asked already."""
    engine = engine_of(task.payload)
    verdict = verdict or oracle_pivot(task, actions)
    if verdict.pivot is None:
        return solved(engine, actions)
    states, _ = replay(engine, actions[: verdict.pivot])
    if verdict.why == "lost":
        done = actions[verdict.pivot]
        cause, advice = unrecoverable(engine, states[-1], done)
        what = f"{done} at turn {verdict.pivot} can't be undone."
    else:
        cause, advice = next_step(engine, states)
        what = useful(actions, verdict.pivot)
    return report(f"Asked: {engine.game.task()} {what}", cause, "failure", advice, verdict.pivot)


def report(summary: str, cause: str, outcome: str, advice: str, pivot: int) -> dict[str, Any]:
    return {
        "trajectory_summary": summary,
        "root_cause_analysis": cause,
        "trajectory_outcome": outcome,
        "improvement_suggestion": advice,
        "retry_from_step": pivot,
    }


def solved(engine: HouseholdEngine, actions: Sequence[str]) -> dict[str, Any]:
    states, texts = replay(engine, actions)
    wasted = [
        k for k in range(len(actions)) if needless(engine, states[k], states[k + 1], explored(engine, states, texts, k))
    ]
    if len(wasted) < WASTED_TURNS:
        return report("Everything asked for is in its place.", "No mistake.", "success", "Keep this plan.", 0)
    return report(
        f"Everything asked for is in its place, after {len(wasted)} turns that were of no use.",
        f"Turn {wasted[0]} was the first of them.",
        "success_but_inefficient",
        "Do only what the task needs.",
        wasted[0],
    )


def useful(actions: Sequence[str], pivot: int) -> str:
    """Return what led up to the pivot of an episode in which nothing was lost for good."""
    return (
        f"Of use until {actions[pivot - 1] or 'no valid action'} at turn {pivot - 1}."
        if pivot
        else "Nothing was of use."
    )


def unrecoverable(engine: HouseholdEngine, before: State, action: str) -> tuple[str, str]:
    """Return cause and advice for the action after which the game can't be won."""
    verb, kind, number, *_, place, _ = action.split()
    thing = f"{kind} {number}"
    index = engine.objects[thing]
    wanted = next((one for one in engine.game.wanted if one.kind == kind), None)
    if verb == "slice":
        return f"{thing} is asked for whole.", f"Do not slice {thing}."
    if verb in TREATMENTS:
        return (
            f"{thing} was to be {' and '.join(wanted.conditions)}." if wanted else "It was not asked for.",
            f"Do not {verb} {thing}.",
        )
    if wanted is None or place != engine.game.target:
        return f"{thing} can't be taken out of the {place}.", f"Do not move {thing} to the {place}."
    if meets(before.marks[index], wanted):
        return f"The {place} has no room for two of {kind}.", f"Do not move {thing} to the {place}."
    missing = missing_steps(engine, before, index, wanted)
    return f"{thing} was moved too early.", f"First {' and '.join(missing)}, then {action}."


def missing_steps(engine: HouseholdEngine, state: State, index: int, wanted: Wanted) -> list[str]:
    """Return what still has to be done to an object, as commands."""
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
    """Return cause and advice if nothing is lost: the first thing asked for that is not delivered."""
    state, seen = states[-1], shown(states)
    for wanted in engine.game.wanted:
        there = [i for i in instances(engine, wanted) if on_target(engine, state, i) and meets(state.marks[i], wanted)]
        if len(there) >= wanted.count:
            continue
        rest = [
            i for i in instances(engine, wanted) if i not in there and i in seen and usable(engine, state, i, wanted)
        ]
        held = [i for i in rest if state.places[i] == HAND]
        if not rest:
            return f"No {wanted.kind} was found.", f"Look for {wanted.kind} in every place that was not looked into."
        index = (held or rest)[0]
        needed = [condition for condition in wanted.conditions if not state.marks[index] & MARKS[condition]]
        cause = f"is not {' and '.join(needed)}" if needed else "was not brought"
        return f"{engine.game.objects[index]} {cause}.", advice_for(engine, state, index, wanted)
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

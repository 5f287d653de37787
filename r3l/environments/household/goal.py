"""The value of a state of a household game: won, lost for good, and the share of sub-goals reached."""

from r3l.environments.household.engine import HAND, HouseholdEngine, State
from r3l.environments.household.game import COOL, HOT, KNIVES, RUINED, SLICEABLE, SLICED, TREATMENTS, Wanted


def instances(engine: HouseholdEngine, wanted: Wanted) -> list[int]:
    """List the objects of the wanted kind."""
    return engine.of_kind[wanted.kind]


def on_target(engine: HouseholdEngine, state: State, index: int) -> bool:
    place = state.places[index]
    return place >= 0 and engine.receptacle_kinds[place] == engine.game.target


def meets(mark: int, wanted: Wanted) -> bool:
    """Tell whether all wanted marks are there: not ruined, sliced only where sliced is wanted."""
    marks = wanted.marks
    return mark & marks == marks and not mark & RUINED and not (mark ^ marks) & SLICED


def is_won(engine: HouseholdEngine, state: State) -> bool:
    return all(
        sum(on_target(engine, state, i) and meets(state.marks[i], goal) for i in instances(engine, goal)) >= goal.count
        for goal in engine.game.wanted
    )


def over(engine: HouseholdEngine, state: State) -> bool:
    """Tell whether the game has ended: won, or the box sealed with something else in it."""
    return is_won(engine, state) or engine.sealed(state)


def count_goals(engine: HouseholdEngine, state: State, index: int, wanted: Wanted) -> int:
    """Count the sub-goals that object `index` has reached: fetched, each wanted mark, delivered as wanted. At most 2 +
    marks."""
    mark = state.marks[index]
    if not usable(engine, state, index, wanted):
        return 0
    there = on_target(engine, state, index)
    is_fetched = there or state.places[index] == HAND
    return int(is_fetched) + (mark & wanted.marks).bit_count() + int(there and meets(mark, wanted))


def progress(engine: HouseholdEngine, state: State) -> float:
    """Compute the share of the sub-goals that the state holds, in [0, 1]; 1 exactly where the game is won."""
    goals_reached = total = 0
    for goal in engine.game.wanted:
        best = sorted((count_goals(engine, state, i, goal) for i in instances(engine, goal)), reverse=True)
        goals_reached += sum(best[: goal.count])
        total += goal.count * (2 + len(goal.conditions))
    return goals_reached / total


def usable(engine: HouseholdEngine, state: State, index: int, wanted: Wanted) -> bool:
    """Tell whether object `index` is, or can still be made and brought, as wanted."""
    mark, place = state.marks[index], state.places[index]
    if mark & RUINED or mark & SLICED & ~wanted.marks:
        return False
    if place >= 0 and engine.final[place]:
        return on_target(engine, state, index) and meets(mark, wanted)
    if engine.game.strict and ((mark & HOT and wanted.marks & COOL) or (mark & COOL and wanted.marks & HOT)):
        return False
    missing = wanted.marks & ~mark
    return not missing & SLICED or (engine.object_kinds[index] in SLICEABLE and knives(engine, state) != [])


def knives(engine: HouseholdEngine, state: State) -> list[int]:
    """List the knives that can be had."""
    return [
        i
        for i, kind in enumerate(engine.object_kinds)
        if kind in KNIVES and (state.places[i] == HAND or not engine.final[state.places[i]])
    ]


def winnable(engine: HouseholdEngine, state: State) -> bool:
    """Tell whether any sequence of actions still wins. The kinds that are wanted differ, so each can be judged
    alone."""
    for goal in engine.game.wanted:
        if sum(usable(engine, state, i, goal) for i in instances(engine, goal)) < goal.count:
            return False
    return not (engine.game.strict and spoiled_box(engine, state))


def spoiled_box(engine: HouseholdEngine, state: State) -> bool:
    """Tell whether the box, which takes no more than what is wanted, holds something that is not."""
    inside = [i for i in range(len(state.places)) if on_target(engine, state, i)]
    fitting = sum(
        min(goal.count, sum(meets(state.marks[i], goal) for i in inside if engine.object_kinds[i] == goal.kind))
        for goal in engine.game.wanted
    )
    return len(inside) > fitting


VAGUE = (
    "Find what is asked for before anything else, and look into closed places, too. Bring it only when everything "
    "that is asked of it is done."
)


def hints(engine: HouseholdEngine) -> list[str]:
    """Write three hints. The first one is the same for all tasks, the last one says where things lie at the start."""
    game = engine.game
    steps = [f"find {goal.kind}{treatment_text(goal)}, bring it to the {game.target}" for goal in game.wanted]
    places = [
        f"{game.objects[index]} is in or on {game.receptacles[game.places[index]]}"
        for goal in game.wanted
        for index in instances(engine, goal)[: goal.count]
    ]
    plan = f"You need to {'; then '.join(steps)}."
    return [VAGUE, plan, f"{plan} At the start, {', and '.join(places)}."]


def treatment_text(wanted: Wanted) -> str:
    """Say what has to be done to an object on its way, and with what."""
    devices = {"clean": "clean", "hot": "heat", "cool": "cool"}
    steps = [
        f"{devices[condition]} it at a {TREATMENTS[devices[condition]][1]}"
        if condition in devices
        else "slice it with a knife"
        for condition in wanted.conditions
    ]
    return "".join(f", {one}" for one in steps)

"""Hints for a household task, from vague to precise: what matters, what it takes, and where it is."""

from r3l.environments.household.engine import HouseholdEngine
from r3l.environments.household.game import TREATMENTS, Wanted
from r3l.environments.household.goal import instances

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

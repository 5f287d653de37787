"""What the sessions of one worker remember: a rollback finds the states of every earlier session, not only of the last
one."""

from r3l.config.environments import HouseholdSettings
from r3l.environments.household.world import HouseholdWorld
from r3l.environments.workers.sessions import Sessions

SETTINGS = HouseholdSettings(level="easy", train_tasks=1)


def test_sessions_that_begin_alike_do_not_forget_each_other():
    """Three episodes share their first two actions and then part; each is rolled back to each of its turns without one
    replayed step."""
    world = HouseholdWorld(SETTINGS)
    (task,) = world.tasks("train")
    sessions = Sessions(world)
    places = ("go to cabinet 1", "go to fridge 1", "go to microwave 1")
    played = {}
    for name in places:
        actions = ["look", "go to countertop 1", name, "look"]
        seen = [sessions.start(name, task).text, *(sessions.step(name, action).observation.text for action in actions)]
        sessions.end(name)
        played[name] = (actions, seen)
    assert sessions.counts == {"steps": 12}
    for name, (actions, seen) in played.items():
        for pivot in range(1, 5):
            assert sessions.rollback(name, task, actions[:pivot], seen[: pivot + 1]).diverged_at is None
            sessions.end(name)
    assert (sessions.counts["restores"], sessions.counts["replays"], sessions.counts["steps"]) == (12, 0, 12)

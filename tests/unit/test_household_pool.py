"""The household world in real worker processes: episodes end as they do in this process, and rollbacks restore."""

from r3l.config.environments import HouseholdSettings
from r3l.environments.household.engine import HouseholdEngine
from r3l.environments.household.game import Game
from r3l.environments.household.solver import solve
from r3l.environments.household.world import HouseholdWorld
from r3l.environments.workers.pool import WorldPool

SETTINGS = HouseholdSettings(level="long", train_tasks=4)


def test_episodes_and_rollbacks_through_worker_processes():
    world = HouseholdWorld(SETTINGS)
    with WorldPool(SETTINGS, workers=2) as pool:
        for task in world.tasks("train"):
            actions = solve(HouseholdEngine(Game.from_json(task.payload)))
            here = world.make()
            seen = [here.reset(task).text]
            steps = [here.step(action) for action in actions]
            seen += [step.observation.text for step in steps]
            assert pool.start(f"{task.task_id}/base", task).result(60).text == seen[0]
            assert [pool.step(f"{task.task_id}/base", action).result(60) for action in actions] == steps
            pool.end(f"{task.task_id}/base").result(60)
            for pivot in range(len(actions)):
                session = f"{task.task_id}/retry={pivot}"
                rolled = pool.rollback(session, task, actions[:pivot], seen[: pivot + 1]).result(60)
                assert (rolled.diverged_at, rolled.exact) == (None, True)
                assert pool.step(session, actions[pivot]).result(60) == steps[pivot]
        counts = pool.counts()
        assert pool.ask_hints("hints", task).result(60) == world.hints(task)
    assert counts["replays"] == counts["restarts"] == 0
    assert counts["restores"] > 4 * 19

"""Steps a second of the household world: ``python tests/benchmarks/household_speed.py [steps]``, one process, one
thread, by its processor seconds: what other programs take meanwhile is left out.
"""

from __future__ import annotations

import json
import random
import sys
import time

from r3l.config.environments import HouseholdSettings
from r3l.environments.household.engine import HouseholdEngine
from r3l.environments.household.game import Game
from r3l.environments.household.oracle import oracle_pivot
from r3l.environments.household.solver import solve
from r3l.environments.household.world import HouseholdWorld


def timed(world: HouseholdWorld, steps: int) -> dict[str, float]:
    """Half of the actions from winning plans, half drawn from all the words of the game."""
    tasks, rng = world.tasks("train"), random.Random(0)
    plans = [solve(HouseholdEngine(Game.from_json(task.payload))) for task in tasks]
    words = [sorted({action for plan in plans for action in plan})]
    script = [[action for own in plan for action in (own, rng.choice(words[0]))] for plan in plans]
    env, taken, wins, rollbacks, episodes = world.make(), 0, 0, 0.0, 0
    began = time.process_time()
    while taken < steps:
        env.reset(tasks[episodes % len(tasks)])
        for action in script[episodes % len(tasks)]:
            taken += 1
            if (step := env.step(action)).done:
                wins += step.success
                break
        episodes += 1
    seconds = time.process_time() - began
    handle = env.snapshot()
    began = time.process_time()
    for _ in range(10_000):
        env.restore(handle)
        handle = env.snapshot()
    rollbacks = (time.process_time() - began) / 10_000
    began = time.process_time()
    verdicts = [oracle_pivot(task, script[i]) for i, task in enumerate(tasks[:20])]
    return {
        "steps": taken,
        "episodes": episodes,
        "won": wins,
        "steps_per_s": round(taken / seconds),
        "snapshot_and_restore_us": round(rollbacks * 1e6, 2),
        "oracle_ms_per_episode": round((time.process_time() - began) / len(verdicts) * 1e3, 1),
    }


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for level in ("easy", "standard", "long"):
        settings = HouseholdSettings(level=level, train_tasks=100)
        print(json.dumps({"level": level, **timed(HouseholdWorld(settings), wanted)}))

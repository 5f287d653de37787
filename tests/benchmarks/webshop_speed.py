"""WebShop's speed: ``python tests/benchmarks/webshop_speed.py [episodes]``. One process by its processor seconds, then
two workers by the clock.
"""

from __future__ import annotations

import json
import random
import sys
import time

from r3l.config.environments import WebShopSettings
from r3l.environments.webshop.session import State
from r3l.environments.webshop.world import WebShopEnvironment, WebShopWorld, products_and_goals, shop_of
from r3l.environments.workers.pool import WorldPool
from r3l.records import Task

SETTINGS = WebShopSettings()


def script(goal: int) -> list[str]:
    """A purchase: search with the instruction, open the wanted product where it is shown, choose, read, buy."""
    wanted = products_and_goals(SETTINGS)[1][goal]
    return [
        f"search[{wanted.instruction}]",
        f"click[{wanted.product.asin}]",
        *(f"click[{value}]" for _, value in wanted.options),
        "click[Features]",
        "click[< Prev]",
        "click[Buy Now]",
    ]


def one_process(tasks: list[Task]) -> dict[str, float]:
    began = time.process_time()
    shop = shop_of(SETTINGS)
    ready = time.process_time() - began
    environment, steps, won, seconds = WebShopEnvironment(shop, SETTINGS), 0, 0, 0.0
    for task in tasks:
        actions = script(json.loads(task.payload)["goal"])
        began = time.process_time()
        environment.reset(task)
        for action in actions:
            steps += 1
            if (step := environment.step(action)).done:
                won += step.success
                break
        seconds += time.process_time() - began
    queries = [goal.instruction for goal in random.Random(0).sample(shop.goals, 300)]
    began = time.process_time()
    for query in queries:
        shop.index.search(query, 50)
    searching = (time.process_time() - began) / len(queries)
    environment.state = State(0)
    began = time.process_time()
    for _ in range(10_000):
        environment.restore(environment.snapshot())
    return {
        "episodes": len(tasks),
        "won": won,
        "ready_s": round(ready, 2),
        "steps_per_s": round(steps / seconds),
        "search_ms": round(searching * 1e3, 2),
        "rollback_us": round((time.process_time() - began) / 10_000 * 1e6, 2),
    }


def two_workers(tasks: list[Task]) -> dict[str, float]:
    pool = WorldPool(SETTINGS, workers=2)
    pool.start("warm/0", tasks[0]).result()
    began = time.perf_counter()
    waiting = []
    for number, task in enumerate(tasks):
        pool.start(f"s{number}", task)
        actions = script(json.loads(task.payload)["goal"])
        waiting.append(
            [pool.step(f"s{number}", action) for action in actions if not action.startswith("click[Buy")][-1]
        )
    for answer in waiting:
        answer.result()
    seconds = time.perf_counter() - began
    pool.close()
    return {"workers": 2, "episodes_per_s": round(len(tasks) / seconds, 1)}


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    listed = WebShopWorld(SETTINGS).tasks("train")[:wanted]
    print(json.dumps(one_process(listed)))
    print(json.dumps(two_workers(listed)))

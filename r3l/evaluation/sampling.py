"""Which tasks of a split are evaluated: all of them, or a sample that has each kind of task in its share."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from r3l.config import Config
from r3l.environments import tasks_of
from r3l.errors import ConfigError
from r3l.records import Task
from r3l.system.seeds import derive


def evaluated_tasks(config: Config, iteration: int) -> tuple[list[Task], int]:
    """Choose the tasks of an evaluation, the same ones for every policy, and count those of their split.

    Raises:
        ConfigError: more tasks are asked for than there are.
    """
    test, whole = config.evaluation, tasks_of(config.environment, config.evaluation.split)
    if test.tasks > len(whole):
        raise ConfigError(
            f"evaluation.tasks={test.tasks}: {config.environment.kind}/{test.split} has only {len(whole)} tasks; "
            "0 takes them all"
        )
    number = test.tasks or len(whole)
    sample = whole[:number] if test.sample == "first" else draw_by_type(whole, number, config.seed)
    return [
        replace(one, iteration=iteration, task=slot, seed=derive(config.seed, "evaluation", slot))
        for slot, one in enumerate(sample)
    ], len(whole)


def draw_by_type(tasks: Sequence[Task], number: int, seed: int) -> list[Task]:
    """Draw `number` tasks by `seed`, of each type in its share of `tasks`, in the order of `tasks`."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        places[task.task_type].append(place)
    shares = largest_remainders({name: len(indices) for name, indices in places.items()}, number)
    places_drawn = [
        place
        for name, indices in places.items()
        for place in sorted(indices, key=lambda place: derive(seed, "evaluation sample", tasks[place].task_id))[
            : shares[name]
        ]
    ]
    return [tasks[place] for place in sorted(places_drawn)]


def largest_remainders(sizes: dict[str, int], number: int) -> dict[str, int]:
    """Share `number` out by size: whole shares first, then one more to the largest remainders, ties by name."""
    whole = sum(sizes.values())
    shares = {name: number * size // whole for name, size in sizes.items()}
    left = number - sum(shares.values())
    for name in sorted(sizes, key=lambda name: (-(number * sizes[name] % whole), name))[:left]:
        shares[name] += 1
    return shares

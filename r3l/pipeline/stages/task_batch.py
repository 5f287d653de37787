"""The tasks of an iteration: the split is shuffled once per epoch by seed, and iterations walk through it."""

from dataclasses import replace
from random import Random

from r3l.config import Config
from r3l.config.sections import RolloutSettings
from r3l.environments.kinds import tasks_of
from r3l.errors import ConfigError
from r3l.records import Task
from r3l.system.seeds import derive


def draw(config: Config, iteration: int) -> list[Task]:
    """Draw the batch of `iteration`, each task with its slot and seed.

    Raises:
        ConfigError: more tasks are asked for than the split has.
    """
    pool = tasks_of(config.environment, config.environment.split)
    size = config.rollout.tasks
    enough(config, len(pool))
    per_epoch = len(pool) // size
    order = list(range(len(pool)))
    Random(derive(config.seed, "epoch", iteration // per_epoch)).shuffle(order)
    first = (iteration % per_epoch) * size
    return [
        replace(pool[index], iteration=iteration, task=slot, seed=derive(config.seed, "task", iteration, slot))
        for slot, index in enumerate(order[first : first + size])
    ]


def replacements(config: Config, iteration: int, wave: int, missing: int) -> list[Task]:
    """Draw tasks in the place of `missing` groups: of the rest of the split, in an order drawn by seed, none of them
    drawn before in this iteration. As many as are left, where they are fewer. The slots of a wave begin at a shard of
    their own."""
    pool = tasks_of(config.environment, config.environment.split)
    size, per_shard = config.rollout.tasks, config.rollout.tasks_per_shard
    names_in_batch = {task.task_id for task in draw(config, iteration)}
    rest = [task for task in pool if task.task_id not in names_in_batch]
    Random(derive(config.seed, "replacement", iteration)).shuffle(rest)
    first = wave * shards_of(size, per_shard) * per_shard
    return [
        replace(task, iteration=iteration, task=slot, seed=derive(config.seed, "task", iteration, slot))
        for slot, task in enumerate(rest[(wave - 1) * size :][:missing], first)
    ]


def shards_of(tasks: int, per_shard: int) -> int:
    """Count the shards that so many tasks are."""
    return -(-tasks // per_shard)


def slots(rollout: RolloutSettings, shard: int) -> range:
    """List the slots that belong to a shard; the last ones of a batch may be none of its tasks."""
    return range(shard * rollout.tasks_per_shard, (shard + 1) * rollout.tasks_per_shard)


def label(rollout: RolloutSettings, shard: int, round_: int) -> int:
    """Number the folder of a shard in a round: shards of later rounds come after all those of earlier ones."""
    return round_ * shards_of(rollout.tasks, rollout.tasks_per_shard) + shard


def enough(config: Config, available: int) -> None:
    """Raise `ConfigError` if the split has fewer tasks than an iteration takes."""
    if config.rollout.tasks > available:
        raise ConfigError(
            f"rollout.tasks={config.rollout.tasks}: {config.environment.kind}/{config.environment.split} has only "
            f"{available} tasks; ask for fewer, or prepare more (r3l prepare {config.environment.kind})"
        )

"""Evaluation episodes: the same rules as base rollouts, at the test temperature, without reflection or retry."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from r3l.config import Config
from r3l.environments.kinds import tasks_of
from r3l.errors import ConfigError
from r3l.evaluation.benchmarks import Posed
from r3l.exploration.explorer import Explorer, gather_all
from r3l.exploration.sample import sample
from r3l.records import Episode, EvaluatedEpisode, Kind, Status, Task
from r3l.store.digests import canonical, fingerprint_of
from r3l.store.layout import StageKey
from r3l.store.stage import Store
from r3l.system.seeds import derive


def evaluation_stage(
    explorer: Explorer, tasks: Sequence[Task], repeats: int, temperature: float, name: str = "evaluation"
) -> list[Episode]:
    """Play `repeats` episodes of every task, in the order of the tasks; `name` tells the evaluations of an iteration
    apart in their ids."""
    explorer.progress.add("evaluations", planned=len(tasks) * repeats)
    return gather_all(
        sample(explorer, task, repeat, kind=Kind.EVALUATION, name=name, temperature=temperature)
        for task in tasks
        for repeat in range(repeats)
    )


def evaluation_rows(episodes: Sequence[Episode], about: Mapping[str, Any]) -> list[EvaluatedEpisode]:
    """Make rows of the table `evaluations`. `about`: the columns that say of which evaluation they are. An episode that
    the world or the engine broke counts as reward 0."""
    rows = []
    for one in episodes:
        trajectory = one.trajectory
        whole = Status(trajectory.status).trainable
        rows.append(
            EvaluatedEpisode(
                trajectory_id=trajectory.trajectory_id,
                iteration=trajectory.iteration,
                **about,
                repeat=trajectory.attempt,
                task_id=trajectory.task_id,
                task_type=trajectory.task_type,
                policy=trajectory.policy,
                status=trajectory.status,
                reward=trajectory.reward if whole else 0.0,
                success=trajectory.success and whole,
                turns=trajectory.turns,
            )
        )
    return rows


def evaluation_key(store: Store, config: Config, iteration: int, settings: Mapping[str, Any], policy: str) -> StageKey:
    """Find the shard of an evaluation: its own where it was played with the same settings and policy, else the next one
    of the iteration."""
    refs = [ref for ref in store.stages(config.run, config.branch, iteration) if ref.stage == "evaluations"]
    manifests = {ref.shard or 0: store.manifest(ref) for ref in refs}
    identity = canonical(settings)
    mine = [
        shard for shard, one in manifests.items() if one["policy"] == policy and canonical(one["settings"]) == identity
    ]
    return StageKey(
        config.run, config.branch, iteration, "evaluations", mine[0] if mine else max(manifests, default=-1) + 1
    )


def evaluation_columns(test: Posed, settings: Mapping[str, Any], tasks: int, of_tasks: int) -> dict[str, Any]:
    """Make the columns that say of which evaluation a row is. `settings`: all that it is made with but for the policy,
    so that evaluations of several policies have the same digest."""
    evaluation = test.config.evaluation
    return {
        "benchmark": test.benchmark,
        "format": test.format,
        "protocol": test.protocol,
        "evaluation": fingerprint_of(settings)[:12],
        "data": settings["data"],
        "split": evaluation.split,
        "tasks": tasks,
        "of_tasks": of_tasks,
        "repeats": evaluation.repeats,
        "seed": test.config.seed,
        "temperature": evaluation.temperature,
    }


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

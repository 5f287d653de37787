"""Runs of other packages, read from the rollouts that they write to disk, as a run of ours.

A reader yields samples; here they become tasks, base attempts and, where advantages are told, credit. What a package
does not write is left empty, never made up, and an event of each iteration names it.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from r3l.config import Config
from r3l.config.compose import compose
from r3l.credit.advantages import group_statistics
from r3l.credit.amplification import signs
from r3l.errors import ConfigError, StoreError
from r3l.pipeline.imports import trl, verl
from r3l.pipeline.imports.sample import Sample
from r3l.pipeline.settings.saved import save_config
from r3l.pipeline.stages.stage_io import Tables, tables
from r3l.records import Credit, Episode, Event, Status, Task, Trajectory, Turn, observation_hash
from r3l.store.digests import canonical, fingerprint
from r3l.store.layout import StageKey, StageRef
from r3l.store.stage import Store

READERS: dict[str, Callable[[Path], Iterator[Sample]]] = {"trl": trl.read, "verl": verl.read}
UNTOLD = (
    "log-probabilities (NaN), the policy's digest, seeds, seconds and training rows; an attempt counts as solved from "
    "a reward of 1 on"
)


def import_run(store: Store, run: str, package: str, path: Path, tokenizer: str = "") -> dict[str, int]:
    """Write a run of another package's rollouts, an iteration for each of its steps; count them.

    Args:
        tokenizer: folder of a model; its tokenizer makes token ids of the texts anew. Empty: there are none.

    Raises:
        ConfigError: an unknown package, or no tokenizer in the folder.
        StoreError: nothing is there to read, a row can't be read, or the run exists.
    """
    if package not in READERS:
        raise ConfigError(f"--from {package!r}: expected one of {', '.join(READERS)}")
    if run in store.runs():
        raise StoreError(f"{run} exists in {store.root}; give the import a name of its own: --run NAME")
    encode = encoder(tokenizer)
    steps: dict[int, list[Sample]] = defaultdict(list)
    for sample in READERS[package](path):
        steps[sample.step].append(sample)
    if not steps:
        raise StoreError(f"{path} holds no rollouts of {package}")
    told = f"token ids are those of the tokenizer in {tokenizer}" if tokenizer else "there are no token ids"
    why = f"{package} does not write {UNTOLD}; {told}"
    counts = {"iterations": len(steps), "attempts": 0, "credited": 0}
    for iteration, (step, samples) in enumerate(sorted(steps.items())):
        groups = grouped(samples)
        save_config(store, config_of(run, package, len(groups), max(map(len, groups))), iteration)
        group_tasks = [(task_of(iteration, slot, group[0], package), group) for slot, group in enumerate(groups)]
        episodes = [
            episode(task, attempt, one, encode) for task, group in group_tasks for attempt, one in enumerate(group)
        ]
        credit = [one for task, group in group_tasks for one in credit_of(task, group)]
        stages: dict[str, Tables] = {
            "tasks": {"tasks": [task for task, _ in group_tasks]},
            "base": tables(episodes, [Event(iteration, "base", "", "not_told", why)]),
            "credit": {"credit": credit},
        }
        parents: list[StageRef] = []
        for stage, its in stages.items():
            if stage != "credit" or credit:
                key = StageKey(run, "", iteration, stage, None if stage == "tasks" else 0)
                # no settings of ours made these rows: `r3l check` compares them with none
                mark = fingerprint(
                    stage, {}, [one.fingerprint for one in parents], extra={"from": package, "step": step}
                )
                parents = [store.commit(key, its, fingerprint=mark, parents=parents, metrics={"step": step})]
        counts["attempts"] += len(episodes)
        counts["credited"] += len(credit)
    return counts


def encoder(folder: str) -> Callable[[str], list[int]]:
    """Load a tokenizer; without one texts have no ids. Raise `ConfigError` where the folder has none."""
    if not folder:
        return lambda text: []
    file = Path(folder, "tokenizer.json")
    if not file.is_file():
        raise ConfigError(f"--tokenizer {folder}: no tokenizer.json there")
    from tokenizers import Tokenizer

    model = Tokenizer.from_file(str(file))
    return lambda text: list(model.encode(text, add_special_tokens=False).ids)


def grouped(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Bring the samples of a prompt together: balancing between GPUs may have parted them."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.prompt].append(sample)
    return list(groups.values())


def config_of(run: str, package: str, tasks: int, group_size: int) -> Config:
    """Make settings that say where the run is from; nothing can be played with them."""
    places = [f"{name}=imported from {package}" for name in ("policy.path", "policy.name")]
    places.append(f"environment.toolset=imported_from_{package}:Nothing")  # which nobody can play
    assignments = [*places, f"rollout.tasks={tasks}", f"rollout.group_size={max(2, group_size)}"]
    return compose(run=run, method="grpo", environment="tools", assignments=assignments)


def task_of(iteration: int, slot: int, sample: Sample, package: str) -> Task:
    name = f"{package}/{observation_hash(sample.prompt)}"
    payload = canonical({"prompt": sample.prompt} | sample.about).decode()
    return Task(iteration, slot, name, package, "train", package, payload, 0)


def episode(task: Task, attempt: int, sample: Sample, encode: Callable[[str], list[int]]) -> Episode:
    name = f"{task.group_id}/base={attempt}"
    turns = [
        Turn(
            trajectory_id=name,
            iteration=task.iteration,
            turn=k,
            observation=seen,
            context_ids=encode(seen),
            response_ids=(ids := encode(reply)),
            response_logprobs=[math.nan] * len(ids),
            response=reply,
            action=reply,
            valid=True,
            finish_reason="",
            observation_hash=observation_hash(seen),
        )
        for k, (seen, reply) in enumerate(sample.turns)
    ]
    trajectory = Trajectory(
        trajectory_id=name,
        kind="base",
        iteration=task.iteration,
        task=task.task,
        task_id=task.task_id,
        task_type=task.task_type,
        group_id=task.group_id,
        attempt=attempt,
        status=Status.COMPLETED,
        reason="",
        reward=sample.reward,
        success=sample.reward >= 1,
        turns=len(turns),
        response_tokens=sum(len(turn.response_ids) for turn in turns),
        final_observation="",
        policy="",
        seed=0,
        seconds=0.0,
    )
    return Episode(trajectory, turns)


def credit_of(task: Task, group: Sequence[Sample]) -> list[Credit]:
    """List the credit of a group whose advantages are told, as they are told."""
    advantages = [one.advantage for one in group if one.advantage is not None]
    if len(advantages) < len(group):
        return []
    mean, std = group_statistics([one.reward for one in group])
    return [
        Credit(
            trajectory_id=f"{task.group_id}/base={attempt}",
            group_id=task.group_id,
            iteration=task.iteration,
            task=task.task,
            kind="base",
            reward=one.reward,
            group_size=len(group),
            group_mean=mean,
            group_std=std,
            scaled=advantage,
            advantage=advantage,
            rule=rule,
            mask_turn=0,
        )
        for attempt, (one, advantage, rule) in enumerate(zip(group, advantages, signs(advantages), strict=True))
    ]

"""Play an exam: roll the world back to every state of stored trajectories, and play on from it K times."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from random import Random

from r3l.config import Config
from r3l.engines.base import PolicySnapshot
from r3l.errors import ConfigError, StoreError
from r3l.exploration.continuations import continue_from
from r3l.exploration.explorer import Explorer
from r3l.exploration.progress import Progress
from r3l.lab.exam.folder import Folder
from r3l.lab.exam.policy import policy_rows
from r3l.lab.exam.records import Continuation, Exam, State, states_of
from r3l.lab.exam.reply_gradients import ReplyGradients
from r3l.pipeline import policies
from r3l.pipeline.iteration import open_iteration, run_stages
from r3l.pipeline.runner import Threads
from r3l.pipeline.settings.continuing import check_changes, load_config
from r3l.pipeline.stages import stage_io
from r3l.pipeline.tools import Tools
from r3l.pipeline.workbench import Replay, Workbench
from r3l.records import Episode, OraclePivot, Status, Task, observation_hash
from r3l.store.layout import StageRef
from r3l.store.stage import Store
from r3l.system.seeds import derive

MEMBERS = ("base", "distilled")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which stored groups are examined, and how: `groups` of them (0: all), each state played on from `continuations`
    times, by seeds that derive from `seed`."""

    run: str
    branch: str = ""
    iteration: int = 0
    continuations: int = 12
    groups: int = 0
    seed: int = 0


def play_exam(store: Store, asked: Asked, folder: Path, tell: Callable[[str], object] = lambda line: None) -> Exam:
    """Play what the folder does not have yet, group by group, and read the exam.

    Raises:
        ConfigError: the folder holds another exam, or the policy is not the one that sampled the groups.
        StoreError: the iteration has no stored base trajectories.
    """
    config = load_config(store, asked.run, asked.branch, asked.iteration)
    refs = store.stages(asked.run, asked.branch, asked.iteration)
    groups = groups_of(store, refs, asked)
    snapshots = policies.find(config, store, asked.iteration)
    if others := {one.trajectory.policy for members in groups for one in members} - {snapshots.behaviour.digest}:
        raise ConfigError(
            f"{asked.run}, iteration {asked.iteration}: sampled by policy {', '.join(sorted(others))}, and policy.path "
            f"now has {snapshots.behaviour.digest}: continuations of another policy would measure other values"
        )
    tasks = {task.task: task for ref in refs if ref.stage == "tasks" for task in stage_io.tasks(store, ref)}
    settings = settings_of(config, asked, snapshots.behaviour.digest, tasks, len(groups))
    states = [states_of(members) for members in groups]
    there = Folder(folder)
    retries = stage_io.episodes(store, [ref for ref in refs if ref.stage == "retries"])
    names = {one.trajectory.trajectory_id for members in groups for one in members}
    oracle = [one for one in verdicts_of(store, refs) if one.trajectory_id in names]
    there.begin(settings, list(zip(groups, states, strict=True)), oracle)
    with closing(Tools()) as tools:
        # it makes no stage, so nothing but the explorer's engine and worlds is started
        only = Replay(asked.branch, "continuations", "continuations")
        bench = Workbench(config, store, asked.iteration, snapshots, Progress(), tools=tools, replay=only)
        for number, (members, passed) in enumerate(zip(groups, states, strict=True), 1):
            began, task = time.monotonic(), tasks[members[0].trajectory.task]
            kept = there.continuations(task.task)
            missing = wanted(passed, asked.continuations, {one.place for one in kept})
            if missing:
                there.keep(task.task, [*kept, *play_on(bench.explorer, task, members, missing, asked.seed)])
            tell(
                f"{asked.run}: group {number} of {len(groups)}: {len(missing)} continuations, "
                f"{time.monotonic() - began:.0f} s"
            )
    ask_policy(there, config, snapshots.behaviour, groups, retries, tell)
    return there.exam()


def settings_of(
    config: Config, asked: Asked, policy: str, tasks: Mapping[int, Task], groups: int
) -> dict[str, str | int]:
    """List what the folder's tables were made from."""
    return {
        "run": asked.run,
        "branch": asked.branch,
        "iteration": asked.iteration,
        "policy": policy,
        "environment": config.environment.model_dump_json(),
        "tasks": observation_hash("\n".join(f"{one.task_id} {one.payload} {one.seed}" for one in tasks.values())),
        "seed": asked.seed,
        "continuations": asked.continuations,
        "groups": groups,
    }


def ask_policy(
    there: Folder,
    config: Config,
    policy: PolicySnapshot,
    groups: Sequence[Sequence[Episode]],
    retries: Sequence[Episode],
    tell: Callable[[str], object],
) -> None:
    """Keep what the policy says of the turns of each group that the folder has nothing of."""
    gradients: ReplyGradients | None = None
    for members in groups:
        task = members[0].trajectory.task
        if there.has_policy(task):
            continue
        gradients = gradients or ReplyGradients(policy.path, policy.base_path, config.policy)
        attempts = [*members, *(one for one in retries if one.trajectory.task == task)]
        there.keep_policy(task, [*policy_rows(gradients, members, states_of(members), attempts)])
        tell(f"{config.run}: task {task}: the gradients of its turns")


def sample_groups(config: Config, store: Store, tools: Tools) -> None:
    """Sample the groups of a run's first iteration, with their credit and without an update.

    Raises:
        ConfigError: a run of this name is there, of another policy, environment or method.
    """
    check_changes(store, config, 0)
    no_update = Replay("", "tasks", "credit")
    with open_iteration(config, store, 0, tools=tools, runner=Threads(), replay=no_update) as bench:
        run_stages(bench)


def groups_of(store: Store, refs: Sequence[StageRef], asked: Asked) -> list[list[Episode]]:
    """Read the exploration groups of an iteration: whole base and stitched trajectories. Of more than are asked for, a
    sample by seed."""
    episodes = stage_io.episodes(store, [ref for ref in refs if ref.stage in MEMBERS])
    whole = sorted(
        (one for one in episodes if Status(one.trajectory.status).trainable and one.turns),
        key=lambda one: (one.trajectory.task, MEMBERS.index(one.trajectory.kind), one.trajectory.attempt),
    )
    groups = [list(members) for _, members in groupby(whole, key=lambda one: one.trajectory.task)]
    if not groups:
        raise StoreError(
            f"{asked.run}: iteration {asked.iteration} has no base trajectories in {store.root}; `r3l runs` lists the "
            "runs"
        )
    if not 0 < asked.groups < len(groups):
        return groups
    chosen = Random(derive(asked.seed, "groups")).sample(range(len(groups)), asked.groups)
    return [groups[place] for place in sorted(chosen)]


def verdicts_of(store: Store, refs: Sequence[StageRef]) -> list[OraclePivot]:
    """Read the verdicts of the environment's oracle."""
    return [
        one
        for ref in refs
        if ref.stage == "oracle_pivots"
        for one in stage_io.records(store, ref, "oracle_pivots", OraclePivot)
    ]


def wanted(
    states: Sequence[Sequence[State]], continuations: int, there: set[tuple[State, int]]
) -> list[tuple[State, int]]:
    """List the (state, number) of a group that are still to be played."""
    different = dict.fromkeys(state for own in states for state in own)
    return [place for state in different for number in range(continuations) if (place := (state, number)) not in there]


def play_on(
    explorer: Explorer, task: Task, members: Sequence[Episode], places: Sequence[tuple[State, int]], seed: int
) -> list[Continuation]:
    """Play one episode for each place, all of them side by side."""
    by_id = {one.trajectory.trajectory_id: one for one in members}
    # a continuation's own seed derives from this one and from its name, so that it does not depend on the others
    seeded = replace(task, seed=derive(task.seed, "exam", seed))

    async def all_of_them() -> list[Episode]:
        calls = [
            continue_from(explorer, seeded, by_id[state.trajectory_id], state.turn, number) for state, number in places
        ]
        return list(await asyncio.gather(*calls))

    return [
        Continuation(
            group_id=task.group_id,
            trajectory_id=state.trajectory_id,
            turn=state.turn,
            number=number,
            seed=seeded.seed,
            status=one.trajectory.status,
            reason=one.trajectory.reason,
            reward=one.trajectory.reward,
            success=one.trajectory.success,
            turns=one.trajectory.turns,
            response_tokens=one.trajectory.response_tokens,
        )
        for (state, number), one in zip(places, asyncio.run(all_of_them()), strict=True)
    ]

"""The replay stage: which rows of earlier iterations are trained on again. Whole groups where S > 1, corrections where
the method has a memory of them."""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import Any

from r3l.exploration.prompting import remembered_guidance
from r3l.methods import method_of
from r3l.methods.replay_buffer import (
    META_TASKS,
    Candidate,
    Correction,
    choose,
    copy_for_replay,
    corrections,
    priority,
    remember,
)
from r3l.pipeline.stages import stage_io
from r3l.pipeline.workbench import Workbench
from r3l.records import Reflection, ReplayedGroup, Task, TrainingRow, observation_hash
from r3l.store.layout import StageRef, line_folder
from r3l.system.seeds import derive


def active(bench: Workbench) -> bool:
    """Tell whether anything of earlier iterations may be learned again."""
    return buffers(bench) or all(method_of(bench.config.method).memory(bench.config.method))


def buffers(bench: Workbench) -> bool:
    """Tell whether the buffer is on: S > 1 (paper, appendix Synchronization Frequency)."""
    return bench.config.training.sync_interval > 1


def earlier(bench: Workbench, iteration: int, stage: str) -> list[StageRef]:
    """Find the stages of one kind of an earlier iteration: the branch's own, else the run's."""
    store, config = bench.store, bench.config
    own = [ref for ref in store.stages(config.run, config.branch, iteration) if ref.stage == stage]
    return own or [ref for ref in store.stages(config.run, "", iteration) if ref.stage == stage]


def replayable_stages(bench: Workbench, iteration: int) -> list[StageRef]:
    """Find the stages whose training rows can be learned again: not those that `r3l prune` emptied."""
    rows = earlier(bench, iteration, "training_rows")
    return [ref for ref in rows if not bench.store.pruned(ref, "training_rows")]


def history(bench: Workbench) -> list[StageRef]:
    """List what the replay stage is made from beside this iteration: the last one's rows, and its replay, which had the
    ones before; and the rows that the memory of corrections was read from."""
    last = bench.iteration - 1
    before = ("training_rows", "replay") if buffers(bench) and last >= 0 else ()
    buffer_refs = [ref for stage in before for ref in earlier(bench, last, stage)]
    return list(dict.fromkeys([*buffer_refs, *corrections_in_memory(bench)[0]]))


def candidates(bench: Workbench) -> list[Candidate]:
    """List every group of an earlier iteration that has training rows, with the updates that have learned from it."""
    iteration_of: dict[str, int] = {}
    uses: Counter[str] = Counter()
    for iteration in range(bench.iteration):
        for ref in replayable_stages(bench, iteration):
            iteration_of |= dict.fromkeys(
                bench.store.read(ref, "training_rows", ["group_id"])["group_id"].to_pylist(), iteration
            )
        for ref in earlier(bench, iteration, "replay"):
            uses.update(bench.store.read(ref, "replay", ["group_id"])["group_id"].to_pylist())
    return [Candidate(group, bench.iteration - iteration, 1 + uses[group]) for group, iteration in iteration_of.items()]


def replay_tables(bench: Workbench, fresh: int, own: Sequence[StageRef] = ()) -> stage_io.Tables:
    """Draw groups; the tables have them, and their rows and those from memory as rows of this iteration. Corrections
    from memory are no groups: they add to the meta-task term, and leave the mean over the batch as it is.

    Args:
        fresh: groups that count in this iteration's own batch.
        own: the stages with its training rows.
    """
    settings = bench.config.training
    groups_drawn = choose(
        candidates(bench) if buffers(bench) else [],
        fresh,
        share=settings.replay_share,
        decay=settings.replay_decay,
        limit=settings.replay_limit,
        seed=derive(bench.config.seed, "replay", bench.iteration),
    )
    rows = {
        one.group_id: list(rows_of(bench, bench.iteration - one.age, "group_id", {one.group_id}))
        for one in groups_drawn
    }
    learned_again = remembered_rows(bench, fresh, own, rows.keys())
    return {
        "training_rows": [*(row for group in rows.values() for row in group), *learned_again],
        "replay": [
            ReplayedGroup(
                iteration=bench.iteration,
                group_id=one.group_id,
                source_iteration=bench.iteration - one.age,
                age=one.age,
                uses=one.uses + 1,
                priority=priority(one, settings.replay_decay),
                rows=len(rows[one.group_id]),
            )
            for one in groups_drawn
        ],
    }


def rows_of(bench: Workbench, iteration: int, column: str, names: Set[str]) -> Iterator[TrainingRow]:
    """Yield the rows of an earlier iteration whose group or row has such a name, under this iteration."""
    for ref in earlier(bench, iteration, "training_rows"):
        if not names.isdisjoint(bench.store.read(ref, "training_rows", [column])[column].to_pylist()):
            rows = stage_io.records(bench.store, ref, "training_rows", TrainingRow)
            yield from copy_for_replay([row for row in rows if getattr(row, column) in names], bench.iteration)


def corrections_in_memory(bench: Workbench) -> tuple[list[StageRef], list[Correction]]:
    """Find the corrections in memory, and the stages that they were looked for in: back from the last iteration until
    the memory is full. Of a task the newest iteration that corrected it counts."""
    capacity, _ = method_of(bench.config.method).memory(bench.config.method)
    read: list[StageRef] = []
    of_task: dict[str, list[Correction]] = {}
    for iteration in reversed(range(bench.iteration)):
        if len(of_task) >= capacity:
            break
        rows = replayable_stages(bench, iteration)
        read += rows
        newer = set(of_task)
        for one in won_in(bench, iteration, rows):
            if one.task_id not in newer and (one.task_id in of_task or len(of_task) < capacity):
                of_task.setdefault(one.task_id, []).append(one)
    return read, [one for task_corrections in of_task.values() for one in task_corrections]


def won_in(bench: Workbench, iteration: int, rows: list[StageRef]) -> list[Correction]:
    """Find the corrections of an earlier iteration, in the order of its rows."""
    columns = ["row_id", "group_id", "iteration", "role", "source_id"]
    tasks = [one for ref in earlier(bench, iteration, "tasks") for one in stage_io.tasks(bench.store, ref)]
    retries = [
        one
        for ref in earlier(bench, iteration, "retries")
        for one in bench.store.read(ref, "trajectories", ["trajectory_id", "reflection_id"]).to_pylist()
    ]
    return corrections(
        [row for ref in rows for row in bench.store.read(ref, "training_rows", columns).to_pylist()],
        {one["trajectory_id"]: one["reflection_id"] for one in retries},
        {task.group_id: task.task_id for task in tasks},
    )


def remembered_rows(
    bench: Workbench, groups: int, own: Sequence[StageRef], replayed_groups: Set[str]
) -> list[TrainingRow]:
    """Draw the rows that the step learns from memory: a share of all its meta-task rows. Where it has fewer of its own
    than groups, they are counted as one per group: memory is there for when corrections run dry."""
    roles = [role for ref in own for role in bench.store.read(ref, "training_rows", ["role"])["role"].to_pylist()]
    corrections_drawn = remember(
        [one for one in corrections_in_memory(bench)[1] if one.group_id not in replayed_groups],
        max(sum(role in META_TASKS for role in roles), groups),
        method_of(bench.config.method).memory(bench.config.method).share,
        derive(bench.config.seed, "memory", bench.iteration),
    )
    return [
        row
        for iteration in sorted({one.iteration for one in corrections_drawn})
        for row in rows_of(bench, iteration, "row_id", {one.row_id for one in corrections_drawn})
    ]


def behaviours(bench: Workbench, replay: StageRef) -> dict[str, str]:
    """Map a digest to the folder of the policies that sampled the replayed rows."""
    digests = set(bench.store.read(replay, "training_rows", ["behaviour_policy"])["behaviour_policy"].to_pylist())
    path_of = {bench.policies.start.digest: bench.policies.start.path}
    for iteration in range(bench.iteration):
        for ref in earlier(bench, iteration, "updates"):
            update_rows: list[dict[str, Any]] = bench.store.read(ref, "updates", ["policy", "path"]).to_pylist()
            line = line_folder(ref.run, ref.branch)
            path_of |= {
                one["policy"]: str(bench.store.local(f"{line}/{one['path']}"))
                for one in update_rows
                if one["policy"] in digests
            }
    return {digest: path for digest, path in path_of.items() if digest in digests}


def remembered(bench: Workbench, tasks: Sequence[Task]) -> dict[str, Reflection]:
    """Find it for each task that has one, by the task's name; the newest iteration counts, and its last one."""
    missing = {task.task_id for task in tasks}
    found: dict[str, Reflection] = {}
    first = max(bench.iteration - method_of(bench.config.method).guidance_memory(bench.config.method), 0)
    for iteration in range(bench.iteration - 1, first - 1, -1):
        columns = ["task_id", "success", "reflection_id"]
        won = {
            row["reflection_id"]: row["task_id"]
            for ref in earlier(bench, iteration, "retries")
            for row in bench.store.read(ref, "trajectories", columns).to_pylist()
            if row["success"] and row["task_id"] in missing
        }
        refs = earlier(bench, iteration, "reflections") if won else []
        reflections = [
            one
            for ref in refs
            if not bench.store.pruned(ref, "reflections")
            for one in stage_io.records(bench.store, ref, "reflections", Reflection)
        ]
        found |= {won[one.reflection_id]: one for one in reflections if one.reflection_id in won}
        missing -= found.keys()
    return found


def identity_of_remembered(found: dict[str, Reflection]) -> dict[str, dict[str, list[str]]]:
    """Name what is shown, for the identity of the stage: no setting and no parent of it tells."""
    shown = {
        task: [one.reflection_id, observation_hash(remembered_guidance(one.report))] for task, one in found.items()
    }
    return {"remembered": shown} if shown else {}

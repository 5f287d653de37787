"""The replay stage, only for S > 1: which earlier groups are trained on again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from r3l.methods.replay_buffer import Candidate, choose, priority, replayed
from r3l.pipeline.stages import stage_io
from r3l.pipeline.workbench import Workbench
from r3l.records import ReplayedGroup, TrainingRow
from r3l.store.layout import StageRef, line_folder
from r3l.system.seeds import derive


def active(bench: Workbench) -> bool:
    """Say whether the buffer is on: S > 1 (paper, appendix Synchronization Frequency)."""
    return bench.config.training.sync_interval > 1


def earlier(bench: Workbench, iteration: int, stage: str) -> list[StageRef]:
    """Return the stages of one kind of an earlier iteration: the branch's own, else the run's."""
    store, config = bench.store, bench.config
    own = [ref for ref in store.stages(config.run, config.branch, iteration) if ref.stage == stage]
    return own or [ref for ref in store.stages(config.run, "", iteration) if ref.stage == stage]


def history(bench: Workbench) -> list[StageRef]:
    """Return what the replay stage is made from beside this iteration: the last one's rows, and its replay, which had
    the ones before."""
    last = bench.iteration - 1
    return [*earlier(bench, last, "training_rows"), *earlier(bench, last, "replay")] if last >= 0 else []


def candidates(bench: Workbench) -> list[Candidate]:
    """Return every group of an earlier iteration that has training rows, with the updates that have learned from it."""
    sampled: dict[str, int] = {}
    uses: Counter[str] = Counter()
    for iteration in range(bench.iteration):
        for ref in earlier(bench, iteration, "training_rows"):
            sampled |= dict.fromkeys(
                bench.store.read(ref, "training_rows", ["group_id"])["group_id"].to_pylist(), iteration
            )
        for ref in earlier(bench, iteration, "replay"):
            uses.update(bench.store.read(ref, "replay", ["group_id"])["group_id"].to_pylist())
    return [Candidate(group, bench.iteration - iteration, 1 + uses[group]) for group, iteration in sampled.items()]


def replay_tables(bench: Workbench, fresh: int) -> stage_io.Tables:
    """Return the groups drawn, and their rows as rows of this iteration. `fresh`: groups that count in this iteration's
    own batch."""
    settings = bench.config.training
    drawn = choose(
        candidates(bench),
        fresh,
        share=settings.replay_share,
        decay=settings.replay_decay,
        limit=settings.replay_limit,
        seed=derive(bench.config.seed, "replay", bench.iteration),
    )
    rows = {one.group_id: list(rows_of(bench, one)) for one in drawn}
    return {
        "training_rows": [row for group in rows.values() for row in group],
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
            for one in drawn
        ],
    }


def rows_of(bench: Workbench, group: Candidate) -> Iterator[TrainingRow]:
    """Yield a group's rows under this iteration."""
    for ref in earlier(bench, bench.iteration - group.age, "training_rows"):
        if group.group_id in set(bench.store.read(ref, "training_rows", ["group_id"])["group_id"].to_pylist()):
            rows = stage_io.records(bench.store, ref, "training_rows", TrainingRow)
            yield from replayed([row for row in rows if row.group_id == group.group_id], bench.iteration)


def behaviours(bench: Workbench, replay: StageRef) -> dict[str, str]:
    """Return digest -> folder of the policies that sampled the replayed rows."""
    wanted = set(bench.store.read(replay, "training_rows", ["behaviour_policy"])["behaviour_policy"].to_pylist())
    known = {bench.policies.start.digest: bench.policies.start.path}
    for iteration in range(bench.iteration):
        for ref in earlier(bench, iteration, "updates"):
            made: list[dict[str, Any]] = bench.store.read(ref, "updates", ["policy", "path"]).to_pylist()
            line = line_folder(ref.run, ref.branch)
            known |= {
                one["policy"]: str(bench.store.local(f"{line}/{one['path']}"))
                for one in made
                if one["policy"] in wanted
            }
    return {digest: path for digest, path in known.items() if digest in wanted}

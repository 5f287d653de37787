"""The stages of an iteration, each as one call, and how they follow one another.

What is stored with the same fingerprint is not computed again; only small `StageRef`s pass between stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from r3l.exploration import stages as exploration
from r3l.exploration.oracle import oracle_stage
from r3l.methods import counted_groups, credit_stage, credits_turns, plan, training_rows_stage
from r3l.pipeline import replay_buffer
from r3l.pipeline.runner import Coming
from r3l.pipeline.stages import stage_io
from r3l.pipeline.stages.identity import world_of
from r3l.pipeline.stages.run_stage import run_stage
from r3l.pipeline.stages.task_batch import draw, replacements
from r3l.pipeline.update.stage import policy_is_there, update_tables
from r3l.pipeline.workbench import Workbench
from r3l.records import Credit, Episode, Kind, Reflection, SamplingPlan, Task, Trajectory, Turn
from r3l.store.layout import StageRef


def plan_of(bench: Workbench) -> SamplingPlan:
    """Return what the method wants sampled."""
    return plan(bench.config.method, bench.config.rollout.group_size)


def slots(bench: Workbench, shard: int) -> range:
    """Return the slots that belong to a shard; the last ones of a batch may be none of its tasks."""
    size = bench.config.rollout.tasks_per_shard
    return range(shard * size, (shard + 1) * size)


def draw_tasks(bench: Workbench, wave: int = 0, missing: int = 0, credit: Sequence[StageRef] = ()) -> StageRef:
    """Draw the iteration's batch; in a later wave, tasks in the place of groups that do not count by their `credit`."""

    def compute() -> stage_io.Tables:
        config, iteration = bench.config, bench.iteration
        return {"tasks": replacements(config, iteration, wave, missing) if wave else draw(config, iteration)}

    return run_stage(bench, "tasks", wave or None, credit, compute, extra={"missing": missing} if wave else None)


def sample_bases(bench: Workbench, batch: StageRef, shard: int) -> StageRef:
    """Sample the base trajectories of a shard of tasks."""
    return run_stage(
        bench,
        "base",
        shard,
        [batch],
        lambda: stage_io.tables(
            exploration.base_stage(bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench))
        ),
        extra=other_world(bench, batch),
    )


def other_world(bench: Workbench, batch: StageRef) -> dict[str, Any]:
    """Data and version of the world, where a replay plays tasks that were drawn under others: no setting and no parent
    of its stages tells of them."""
    if bench.replay is None:
        return {}
    now, drawn = world_of(bench.config, bench.config.environment.split), bench.store.manifest(batch)["settings"]
    was = {"data": drawn.get("data", now["data"]), "world": drawn.get("world", 1)}  # older runs have neither
    return {} if was == now else now


def _shard_tasks(bench: Workbench, batch: StageRef, shard: int) -> list[Task]:
    return stage_io.tasks(bench.store, batch, slots(bench, shard))


def _grown(bench: Workbench, base: StageRef, distilled: Sequence[StageRef]) -> tuple[list[Episode], list[Episode]]:
    """Return (bases, for each the newest attempt grown from it)."""
    bases = stage_io.episodes(bench.store, [base])
    return bases, exploration.latest(bases, stage_io.episodes(bench.store, distilled))


def find_oracle_pivots(bench: Workbench, batch: StageRef, base: StageRef, shard: int) -> StageRef:
    """Return where the environment's oracle says that the failed bases of a shard went wrong."""

    def compute() -> stage_io.Tables:
        pivots, events = oracle_stage(
            bench.explorer, _shard_tasks(bench, batch, shard), stage_io.episodes(bench.store, [base])
        )
        return {"oracle_pivots": pivots, "events": events}

    return run_stage(bench, "oracle_pivots", shard, [batch, base], compute, extra=other_world(bench, batch))


def reflect(
    bench: Workbench, batch: StageRef, base: StageRef, distilled: list[StageRef], shard: int, round_: int
) -> StageRef:
    """Reflect on every base of a shard, or from the second round on, on the attempt that grew from it."""

    def compute() -> stage_io.Tables:
        bases, abouts = _grown(bench, base, distilled)
        return {
            "reflections": exploration.reflections_stage(
                bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench), bases, abouts, round_
            )
        }

    return run_stage(bench, "reflections", label(bench, shard, round_), [base, *distilled], compute)


def retry(
    bench: Workbench,
    batch: StageRef,
    base: StageRef,
    distilled: list[StageRef],
    reflections: StageRef,
    shard: int,
    round_: int,
) -> StageRef:
    """Retry from the pivots that the reflections name."""

    def compute() -> stage_io.Tables:
        bases, abouts = _grown(bench, base, distilled)
        records = stage_io.records(bench.store, reflections, "reflections", Reflection)
        return stage_io.tables(
            exploration.retries_stage(
                bench.explorer, _shard_tasks(bench, batch, shard), plan_of(bench), bases, abouts, records
            )
        )

    parents = [base, *distilled, reflections]
    return run_stage(bench, "retries", label(bench, shard, round_), parents, compute, extra=other_world(bench, batch))


def stitch(
    bench: Workbench, base: StageRef, distilled: list[StageRef], retries: StageRef, shard: int, round_: int
) -> StageRef:
    """Stitch the corrected suffixes to the prefixes, without the guidance."""

    def compute() -> stage_io.Tables:
        _, abouts = _grown(bench, base, distilled)
        return stage_io.tables(*exploration.distilled_stage(abouts, stage_io.episodes(bench.store, [retries])))

    return run_stage(bench, "distilled", label(bench, shard, round_), [base, *distilled, retries], compute)


def label(bench: Workbench, shard: int, round_: int) -> int:
    """Return the folder number of a shard's later rounds: after all shards of the rounds before."""
    config = bench.config.rollout
    return round_ * -(-config.tasks // config.tasks_per_shard) + shard


def assign_credit(
    bench: Workbench, base: StageRef, retries: list[StageRef], distilled: list[StageRef], shard: int
) -> StageRef:
    """Advantages, amplification and pivot masks of a shard's groups."""

    def compute() -> stage_io.Tables:
        refs = [base, *retries, *distilled]
        turns = _turns(bench, refs) if credits_turns(bench.config.method) else []
        credit, events = credit_stage(bench.config.method, _members(bench, base, retries, distilled), turns)
        return {"credit": credit, "events": events}

    return run_stage(bench, "credit", shard, [base, *retries, *distilled], compute)


def _turns(bench: Workbench, refs: Sequence[StageRef]) -> list[Turn]:
    return [turn for ref in refs for turn in stage_io.records(bench.store, ref, "turns", Turn)]


def _members(
    bench: Workbench, base: StageRef, retries: Sequence[StageRef], distilled: Sequence[StageRef]
) -> list[Trajectory]:
    """Return base (including extra ones) and distilled trajectories."""
    members = [
        one
        for ref in (base, *retries, *distilled)
        for one in stage_io.records(bench.store, ref, "trajectories", Trajectory)
    ]
    return [one for one in members if one.kind in {Kind.BASE, Kind.DISTILLED}]


def write_training_rows(
    bench: Workbench,
    base: StageRef,
    reflections: list[StageRef],
    retries: list[StageRef],
    distilled: list[StageRef],
    credit: StageRef,
    shard: int,
) -> StageRef:
    """Return the sequences that the update job reads, each token with its weight."""
    parents = [base, *reflections, *retries, *distilled, credit]

    def compute() -> stage_io.Tables:
        episodes = stage_io.episodes(bench.store, [base, *retries, *distilled])
        rows, events = training_rows_stage(
            bench.config.method,
            episodes,
            [one for ref in reflections for one in stage_io.records(bench.store, ref, "reflections", Reflection)],
            stage_io.records(bench.store, credit, "credit", Credit),
        )
        return {"training_rows": rows, "events": events}

    return run_stage(bench, "training_rows", shard, parents, compute)


def replay_groups(bench: Workbench, credit: list[StageRef], rows: list[StageRef]) -> StageRef:
    """Draw groups of earlier iterations to learn from again."""
    parents = [*credit, *rows, *replay_buffer.history(bench)]
    return run_stage(bench, "replay", None, parents, lambda: replay_buffer.replay_tables(bench, counted(bench, credit)))


def counted(bench: Workbench, credit: list[StageRef]) -> int:
    return counted_groups(one for ref in credit for one in stage_io.records(bench.store, ref, "credit", Credit))


def update(bench: Workbench, credit: list[StageRef], rows: list[StageRef], replay: list[StageRef]) -> StageRef:
    """Return one optimiser step over the batch and, where there are any, replayed groups, by the update job."""

    def compute() -> stage_io.Tables:
        groups = counted(bench, credit) + sum(bench.store.read(ref, "replay", ["group_id"]).num_rows for ref in replay)
        older = {digest: path for ref in replay for digest, path in replay_buffer.behaviours(bench, ref).items()}
        return update_tables(bench, [*rows, *replay], groups, older)

    return run_stage(bench, "updates", None, [*rows, *replay], compute, policy_is_there)


CALLS: dict[str, Callable[..., StageRef]] = {
    "tasks": draw_tasks,
    "base": sample_bases,
    "oracle_pivots": find_oracle_pivots,
    "reflections": reflect,
    "retries": retry,
    "distilled": stitch,
    "credit": assign_credit,
    "training_rows": write_training_rows,
    "replay": replay_groups,
    "updates": update,
}
Chain = dict[str, list[Coming]]  # of one shard: stage -> its futures, one per round


def submit(bench: Workbench, batch: StageRef, shard: int, chain: Chain) -> None:
    """Submit a shard's stages into `chain`. Each waits for its own predecessors only, so that shards are in flight side
    by side."""
    begin, plan = bench.runner.submit, plan_of(bench)
    if bench.wants("base"):
        chain["base"].append(begin(sample_bases, bench, batch, shard))
    if bench.asks_oracle:
        chain["oracle_pivots"].append(begin(find_oracle_pivots, bench, batch, chain["base"][0], shard))
    for round_ in range(plan.retries_per_base if plan.reflection != "none" else 0):
        submit_round(bench, batch, shard, chain, round_)
    if bench.wants("credit"):
        parents = (chain["base"][0], chain["retries"], chain["distilled"])
        chain["credit"].append(begin(assign_credit, bench, *parents, shard))
    if bench.wants("training_rows"):
        of_all = (chain["base"][0], chain["reflections"], chain["retries"], chain["distilled"], chain["credit"][0])
        chain["training_rows"].append(begin(write_training_rows, bench, *of_all, shard))


def submit_round(bench: Workbench, batch: StageRef, shard: int, chain: Chain, round_: int) -> None:
    """Reflect on the newest attempts, retry from the pivots, stitch."""
    begin, before = bench.runner.submit, list(chain["distilled"])
    if bench.wants("reflections"):
        chain["reflections"].append(begin(reflect, bench, batch, chain["base"][0], before, shard, round_))
    if bench.wants("retries"):
        guided = (chain["base"][0], before, chain["reflections"][-1])
        chain["retries"].append(begin(retry, bench, batch, *guided, shard, round_))
    if bench.wants("distilled"):
        chain["distilled"].append(begin(stitch, bench, chain["base"][0], before, chain["retries"][-1], shard, round_))


def in_order(chain: Chain) -> list[Coming]:
    """Return a shard's futures in the order in which they can end."""
    return [future for stage in CALLS for future in chain[stage]]


def shard_stages(bench: Workbench, batch: StageRef, shards: Sequence[int]) -> list[StageRef]:
    """Return all stages of these shards, once they are committed. Up to `shards_in_flight` shards are worked on at
    once."""
    chains, most = list[Chain](), bench.config.rollout.shards_in_flight
    with ended_together(bench, chains):
        for place, shard in enumerate(shards):
            if place >= most:
                in_order(chains[place - most])[-1].wait()
            chains.append({stage: [] for stage in CALLS})
            submit(bench, batch, shard, chains[-1])
        return [future.result() for chain in chains for future in in_order(chain)]


@contextmanager
def ended_together(bench: Workbench, chains: Sequence[Chain]) -> Iterator[None]:
    """Where one stage fails or the work is ended, end what the others wait for, and wait until they have ended."""
    try:
        yield
    except BaseException as error:
        bench.close(bench.runner.ending(error) or f"another stage failed: {error}")
        bench.runner.settle([future for chain in chains for future in in_order(chain)])
        raise

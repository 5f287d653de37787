"""The costs of a stored run, as a basis for planning a similar one."""

from dataclasses import dataclass

from r3l.errors import StoreError
from r3l.store.catalog import connect
from r3l.store.stage import Store

COUNTS = """
SELECT count(DISTINCT (iteration, task)),
       sum(turns) FILTER (kind = 'base') + sum(turns - coalesce(pivot_turn, 0)) FILTER (kind IN ('retry',
       'continuation')),
       sum(response_tokens) FILTER (kind IN ('base', 'retry', 'continuation')),
       sum(response_tokens) FILTER (kind IN ('base', 'retry', 'continuation', 'distilled'))
FROM trajectories WHERE run = ? AND branch = '' AND iteration >= 0 AND kind <> 'evaluation'
"""
PASSES = """
SELECT avg(passes) FROM (SELECT max(epoch) + 1 AS passes FROM updates WHERE run = ? AND branch = '' GROUP BY iteration)
"""
SPENT = """
SELECT stage, sum(seconds), sum(bytes) FROM stages
WHERE run = ? AND branch = '' AND iteration >= 0 AND stage <> 'evaluations' GROUP BY stage ORDER BY min(committed_at)
"""


@dataclass(frozen=True)
class ObservedRun:
    """Sums over all iterations of a run, its evaluations left out."""

    run: str
    tasks: int
    turns: int  # played: those of bases, and those of retries and continuations from the pivot on
    sampled: int  # tokens of bases, retries and continuations
    trained: int  # the same and distilled ones: what the tables hold
    bytes: int
    seconds: dict[str, float]  # stage -> summed over shards
    epochs: float = 1.0  # passes of an update over its batch


def observe_run(store: Store, run: str) -> ObservedRun:
    """Sum up what a run has cost. Raise `StoreError` where it has no finished rollouts."""
    with connect(store, [run], question=COUNTS + PASSES + SPENT) as connection:
        row = connection.execute(COUNTS, [run]).fetchone()
        passes = connection.execute(PASSES, [run]).fetchone()
        stage_rows = connection.execute(SPENT, [run]).fetchall()
    if row is None or not row[0]:
        raise StoreError(f"run {run}: no rollouts in {store.root} to plan from; see `r3l runs`")
    tasks, turns, sampled_tokens, trained_tokens = (int(value or 0) for value in row)
    return ObservedRun(
        run,
        tasks,
        turns,
        sampled_tokens,
        trained_tokens,
        sum(int(size) for _, _, size in stage_rows),
        {stage: float(seconds or 0) for stage, seconds, _ in stage_rows},
        (passes and passes[0]) or 1.0,
    )

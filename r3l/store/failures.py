"""Stages in which errors of the engine or the environment ended too many attempts, mostly because the work was
stopped."""

from collections.abc import Iterator

import duckdb

# the share that counts as usual where a stage's manifest names no other, as rollout.max_failed_share does
TOLERATED = 0.10
FAILURES = """
WITH made AS (
    SELECT run, branch, iteration, CASE kind WHEN 'base' THEN 'base' WHEN 'retry' THEN 'retries'
                                        WHEN 'continuation' THEN 'continuations' ELSE 'evaluations' END AS stage,
           trajectory_id AS id, status, reason
    FROM stored.trajectories WHERE kind IN ('base', 'retry', 'continuation', 'evaluation')
    UNION ALL SELECT run, branch, iteration, 'reflections', reflection_id, status, reason FROM stored.reflections
),
allowed AS (
    SELECT run, branch, iteration, stage, max(json_extract(metrics, '$.max_failed_share')::DOUBLE) AS share
    FROM stages GROUP BY ALL
)
SELECT run, branch, iteration, stage, count(*) AS attempts,
       count(*) FILTER (status IN ('environment_error', 'engine_error')) AS failed,
       min_by(status || ': ' || reason, id) FILTER (status IN ('environment_error', 'engine_error')) AS first,
       failed / attempts > coalesce(any_value(share), $tolerated) AS too_many
FROM made LEFT JOIN allowed USING (run, branch, iteration, stage)
GROUP BY run, branch, iteration, stage HAVING failed > 0
ORDER BY ALL
"""


def failing_stages(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, int, str, str, bool]]:
    """Yield (run, branch, iteration, stage, what, whether there are too many) of each stage that has such rows,
    whatever version wrote it."""
    rows = connection.execute(FAILURES, {"tolerated": TOLERATED}).fetchall()
    for run, branch, iteration, stage, attempts, failures, first, too_many in rows:
        what = f"{failures} of {attempts} attempts ended by errors of the engine or the environment; the first: {first}"
        yield run, branch, iteration, stage, what, too_many

-- 5. What was recorded is what was seen: a turn's hash is that of its observation, and a rollback returned, turn for turn, what its parent
--    had been told, or is recorded as diverged.
WITH rolled AS (
    SELECT run, branch, iteration, shard, 'retries' AS stage, retry_id AS id, parent_id, pivot_turn, status, rollback_hashes FROM lines.retries
    UNION ALL
    SELECT run, branch, iteration, shard, 'continuations', continuation_id, parent_id, pivot_turn, status, rollback_hashes FROM lines.continuations
),
returned AS (
    SELECT run, branch, iteration, id, parent_id, status, len(rollback_hashes) AS turns,
           unnest(range(len(rollback_hashes))) AS turn, unnest(rollback_hashes) AS hash
    FROM rolled WHERE rollback_hashes IS NOT NULL
),
hashes AS (SELECT observation, observation_hash AS stored, observation_hash(observation) AS made
           FROM (SELECT DISTINCT observation, observation_hash FROM lines.turns))
SELECT t.run, t.branch, t.iteration, t.trajectory_id AS id, 'turn ' || t.turn || ': its observation is not that of its hash' AS what
FROM lines.turns t JOIN hashes h ON (h.observation, h.stored) = (t.observation, t.observation_hash) WHERE h.stored <> h.made
UNION ALL
SELECT r.run, r.branch, r.iteration, r.id, 'turn ' || r.turn || ': the rollback returned another observation than its parent had'
FROM returned r JOIN lines.turns b ON (b.run, b.branch, b.trajectory_id, b.turn) = (r.run, r.branch, r.parent_id, r.turn)
WHERE r.hash <> b.observation_hash AND NOT (r.status = 'diverged' AND r.turn = r.turns - 1)
UNION ALL
SELECT r.run, r.branch, r.iteration, r.id,
       'the rollback returned ' || coalesce(len(r.rollback_hashes), 0) || ' observations, expected ' || r.pivot_turn + 1
FROM rolled r
JOIN lines.stages s ON (s.run, s.branch, s.iteration, s.stage) = (r.run, r.branch, r.iteration, r.stage) AND s.shard IS NOT DISTINCT FROM r.shard
WHERE s.schema_version >= 3 AND r.status NOT IN ('diverged', 'environment_error') AND len(r.rollback_hashes) IS DISTINCT FROM r.pivot_turn + 1
UNION ALL
SELECT c.run, c.branch, c.iteration, c.trajectory_id, 'turn ' || t.turn || ': not the observation that its parent had'
FROM lines.trajectories c
JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (c.run, c.branch, c.trajectory_id) AND t.turn <= c.pivot_turn
JOIN lines.turns b ON (b.run, b.branch, b.trajectory_id, b.turn) = (c.run, c.branch, c.parent_id, t.turn)
WHERE c.parent_id IS NOT NULL AND c.status <> 'diverged' AND t.observation_hash <> b.observation_hash;

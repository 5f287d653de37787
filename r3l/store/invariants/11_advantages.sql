-- 11. The advantage of a member is what the rewards of its group and the settings of its stage come to, computed here a second time, in SQL:
--     mean and deviation, A(tau), its amplification (paper, Eq. 8), its rule. For methods whose members have no advantage of another kind.
WITH methods AS (
    SELECT run, branch, iteration, shard, settings -> '$.method' AS m, settings ->> '$.method.kind' AS kind FROM lines.stages WHERE stage = 'credit'
),
members AS (
    SELECT c.run, c.branch, c.iteration, c.trajectory_id AS id, c.kind AS member, c.rule, c.scaled, c.advantage, c.group_std, c.turn_advantages,
           t.reward::DOUBLE AS reward, s.m, s.kind, avg(t.reward::DOUBLE) OVER g AS mean, coalesce(stddev_samp(t.reward::DOUBLE) OVER g, 0) AS std,
           min(t.reward) OVER g = max(t.reward) OVER g AS equal, max(t.reward) OVER g AS best, count(*) OVER g AS size
    FROM lines.credit c
    JOIN lines.trajectories t USING (run, branch, iteration, trajectory_id)
    JOIN methods s ON (s.run, s.branch, s.iteration) = (c.run, c.branch, c.iteration) AND s.shard IS NOT DISTINCT FROM c.shard
    WHERE s.kind IN ('r3l', 'grpo', 'gspo', 'bapo', 'opmd', 'reflect_grpo', 'gigpo', 'hgpo', 'rlsd', 'vineppo', 'process_supervision') AND c.penalty = 0
    WINDOW g AS (PARTITION BY c.run, c.branch, c.iteration, c.group_id)
),
scaled AS (
    SELECT *, CASE WHEN equal THEN 0 WHEN m ->> '$.scale' = 'std' THEN (reward - mean) / (std + 1e-6) ELSE reward - mean END AS a,
           CASE m ->> '$.top_rule' WHEN 'success' THEN reward >= (m ->> '$.success_threshold')::FLOAT WHEN 'group_max' THEN NOT equal AND reward = best
                                   ELSE false END AND (m ->> '$.amplify')::BOOLEAN AS top
    FROM members
),
expected AS (
    SELECT *, CASE WHEN size = 1 THEN 0
                   WHEN member = 'distilled' AND a > 0 AND NOT coalesce((m ->> '$.amplify_distilled')::BOOLEAN, true) THEN a
                   WHEN top THEN coalesce((m ->> '$.top_value')::DOUBLE, (m ->> '$.alpha')::DOUBLE)
                   WHEN a > 0 AND (m ->> '$.amplify')::BOOLEAN THEN (m ->> '$.alpha')::DOUBLE * a ELSE a END AS amplified
    FROM scaled
)
SELECT run, branch, iteration, id, 'A(tau) is ' || scaled || ', the rewards of its group say ' || a AS what
FROM expected WHERE NOT coalesce(abs(scaled - a) <= 1e-5 * greatest(1, abs(a)), false)
UNION ALL
SELECT run, branch, iteration, id, 'advantage ' || advantage || ', the rewards of its group and its settings say ' || amplified
FROM expected WHERE NOT coalesce(abs(advantage - amplified) <= 1e-5 * greatest(1, abs(amplified)), false)
UNION ALL
SELECT run, branch, iteration, id, 'standard deviation ' || group_std || ', its group has ' || std
FROM expected WHERE NOT coalesce(abs(group_std - std) <= 1e-6, false);

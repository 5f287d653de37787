-- 8. Credit is of the whole group: its size and mean are those of its members, each reward is its trajectory's, the pivot mask is
--    the one that the settings of the stage ask for, and where turns have advantages, each turn has one.
WITH members AS (
    SELECT c.*, json_extract_string(s.settings, '$.method.pivot_mask') AS pivot_mask, count(*) OVER g AS size, avg(c.reward - c.penalty) OVER g AS mean
    FROM lines.credit c
    JOIN lines.stages s ON (s.run, s.branch, s.iteration, s.stage) = (c.run, c.branch, c.iteration, 'credit') AND s.shard IS NOT DISTINCT FROM c.shard
    WINDOW g AS (PARTITION BY c.run, c.branch, c.iteration, c.group_id)
),
credited AS (SELECT d.run, d.branch, d.base_id, d.distilled_id, coalesce(d.shared_turns, d.pivot_turn) AS turns FROM lines.distilled d
             SEMI JOIN lines.credit c ON (c.run, c.branch, c.trajectory_id) = (d.run, d.branch, d.distilled_id)),
shared AS (
    SELECT run, branch, distilled_id AS trajectory_id, turns FROM credited
    UNION ALL
    SELECT run, branch, base_id, min(turns) FROM credited GROUP BY run, branch, base_id
),
masked AS (
    SELECT m.run, m.branch, m.iteration, m.trajectory_id, m.mask_turn, m.pivot_mask, coalesce(s.turns, 0) AS shared,
           CASE WHEN pivot_mask = 'off' OR (pivot_mask = 'retry_only' AND kind = 'base') THEN 0 ELSE coalesce(s.turns, 0) END AS expected
    FROM members m LEFT JOIN shared s USING (run, branch, trajectory_id)
)
SELECT run, branch, iteration, trajectory_id AS id,
       'masked before turn ' || mask_turn || ', shared with its pair before ' || shared || coalesce(', pivot_mask is ' || pivot_mask, '') AS what
FROM masked WHERE CASE WHEN pivot_mask IS NULL THEN mask_turn NOT IN (0, shared) ELSE mask_turn <> expected END
UNION ALL
SELECT run, branch, iteration, trajectory_id, 'in a group of ' || size || ' members, mean ' || round(mean, 6) || '; credit says ' || group_size
       || ', mean ' || round(group_mean, 6)
FROM members WHERE size <> group_size OR abs(mean - group_mean) > 1e-6
UNION ALL
SELECT c.run, c.branch, c.iteration, c.trajectory_id, 'reward ' || c.reward || ', its trajectory has ' || coalesce(t.reward::VARCHAR, 'no row')
FROM lines.credit c LEFT JOIN lines.trajectories t USING (run, branch, iteration, trajectory_id) WHERE c.reward IS DISTINCT FROM t.reward
UNION ALL
SELECT c.run, c.branch, c.iteration, c.trajectory_id, len(c.turn_advantages) || ' advantages of turns, its trajectory has ' || t.turns || ' turns'
FROM lines.credit c JOIN lines.trajectories t USING (run, branch, iteration, trajectory_id)
WHERE len(c.turn_advantages) <> t.turns OR list_bool_or(list_transform(c.turn_advantages, lambda a: NOT isfinite(a)));

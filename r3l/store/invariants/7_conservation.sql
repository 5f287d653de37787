-- 7. Attempts = trained + led to a trained one + dropped with a reason, and none is missing: bases per task and reflections per base are
--    as many as the settings ask for, each reflection that decided on a retry has one, each base as many
--    continuations as its turns allow, and no attempt lacks its base.
WITH plans AS (
    SELECT run, branch, iteration, stage, settings -> '$.plan' AS plan FROM lines.stages WHERE iteration >= 0
),
asked AS (
    SELECT run, branch, iteration, max((plan ->> '$.bases')::INTEGER) FILTER (stage = 'base') AS bases,
           max((plan ->> '$.retries_per_base')::INTEGER) FILTER (stage = 'reflections' AND plan ->> '$.reflection' <> 'none') AS rounds,
           max((plan ->> '$.continuations')::INTEGER) FILTER (stage = 'continuations') AS continuations,
           max((plan ->> '$.continued_turns')::INTEGER) FILTER (stage = 'continuations') AS continued_turns,
           bool_or(stage = 'updates') AS whole
    FROM plans GROUP BY run, branch, iteration
),
bases AS (
    SELECT b.run, b.branch, b.iteration, b.task, b.base_id, any_value(a.rounds) AS rounds, bool_or(a.whole) AS whole, count(f.reflection_id) AS reflections
    FROM lines.base b JOIN asked a ON (a.run, a.branch, a.iteration) = (b.run, b.branch, b.iteration) AND b.attempt < a.bases
    LEFT JOIN lines.reflections f ON (f.run, f.branch, f.iteration, f.base_id) = (b.run, b.branch, b.iteration, b.base_id)
    GROUP BY b.run, b.branch, b.iteration, b.task, b.base_id
),
sampled AS (SELECT run, branch, iteration, task, count(*) AS bases FROM bases GROUP BY ALL)
SELECT run, branch, iteration, stage AS id, unaccounted || ' of ' || attempts || ' attempts are neither trained nor dropped with a reason' AS what
FROM lines.account WHERE unaccounted > 0
UNION ALL
SELECT run, branch, iteration, format('iteration={}/task={}', iteration, task), coalesce(s.bases, 0) || ' bases, the settings ask for ' || a.bases
FROM lines.tasks JOIN asked a USING (run, branch, iteration) LEFT JOIN sampled s USING (run, branch, iteration, task)
WHERE coalesce(s.bases, 0) <> a.bases AND (a.whole OR s.bases IS NOT NULL)
UNION ALL
SELECT run, branch, iteration, base_id, reflections || ' reflections, the settings ask for ' || rounds
FROM bases WHERE whole AND reflections <> rounds
UNION ALL
SELECT b.run, b.branch, b.iteration, b.base_id,
       count(c.continuation_id) || ' continuations, the settings ask for ' || any_value(a.continuations * least(a.continued_turns, b.turns - 1))
FROM lines.base b JOIN asked a USING (run, branch, iteration)
LEFT JOIN lines.continuations c ON (c.run, c.branch, c.iteration, c.base_id) = (b.run, b.branch, b.iteration, b.base_id)
WHERE a.whole AND b.turns > 0 AND b.status IN ('completed', 'turn_limit', 'context_limit', 'invalid_reply')
GROUP BY b.run, b.branch, b.iteration, b.base_id
HAVING count(c.continuation_id) <> any_value(a.continuations * least(a.continued_turns, b.turns - 1))
UNION ALL
SELECT f.run, f.branch, f.iteration, f.reflection_id, 'decided on a retry that is not stored'
FROM lines.reflections f JOIN asked a USING (run, branch, iteration)
ANTI JOIN lines.retries r ON (r.run, r.branch, r.iteration, r.reflection_id) = (f.run, f.branch, f.iteration, f.reflection_id)
WHERE a.whole AND f.decision = 'retry'
UNION ALL
SELECT t.run, t.branch, t.iteration, t.id, 'its base ' || t.base_id || ' is not stored'
FROM (SELECT run, branch, iteration, trajectory_id AS id, base_id FROM lines.trajectories WHERE base_id IS NOT NULL
      UNION ALL SELECT run, branch, iteration, reflection_id, base_id FROM lines.reflections) t
ANTI JOIN lines.base b ON (b.run, b.branch, b.iteration, b.base_id) = (t.run, t.branch, t.iteration, t.base_id);

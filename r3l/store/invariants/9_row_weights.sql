-- 9. A training row says what its credit and the settings of its stage say: the advantage of its credit (for a lesson 1, or what
--    its retry's reward is worth where reflections are rewarded), on the tokens of each reply that of its turn where turns have their own, on every
--    sampled token from its mask on the weight of the normaliser; a replayed row says what it said before.
WITH sampled AS ( -- sampled tokens of a source, and those of them that are trained
    SELECT t.run, t.branch, t.trajectory_id AS source_id, 'explore' AS as_role, sum(len(t.response_ids)) AS tokens,
           sum(len(t.response_ids)) FILTER (t.turn >= coalesce(c.mask_turn, 0)) AS trained
    FROM lines.turns t LEFT JOIN lines.credit c USING (run, branch, trajectory_id) GROUP BY ALL
    UNION ALL
    SELECT r.run, r.branch, r.retry_id, 'retry', r.response_tokens + coalesce(sum(len(t.response_ids)), 0), any_value(r.response_tokens)
    FROM lines.retries r LEFT JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (r.run, r.branch, r.parent_id) AND t.turn < r.pivot_turn
    GROUP BY r.run, r.branch, r.retry_id, r.response_tokens
    UNION ALL
    SELECT run, branch, reflection_id, 'reflect', len(response_ids), len(response_ids) FROM lines.reflections
),
sizes AS (SELECT run, branch, iteration, group_id, any_value(group_size) AS size FROM lines.credit GROUP BY ALL),
rewarded AS ( -- Reflect, Retry, Reward: a reflection is worth its retry's reward against those of its task's other reflections; ERL: the retry, too
    SELECT run, branch, unnest([reflection_id, retry_id]) AS source_id, (reward - avg(reward) OVER g) / (stddev_samp(reward) OVER g + 1e-6) AS advantage
    FROM lines.retries WHERE status IN ('completed', 'turn_limit', 'context_limit', 'invalid_reply')
    WINDOW g AS (PARTITION BY run, branch, iteration, group_id)
),
brought AS ( -- R3L: the gain of a report's retry on the better of its base and what it reflects on; no valid report has what is set
    SELECT f.run, f.branch, f.iteration, f.group_id, f.reflection_id, f.status, s.settings -> '$.method' AS method,
           CASE f.status WHEN 'invalid' THEN (s.settings ->> '$.method.meta_invalid_weight')::DOUBLE
                WHEN 'parsed' THEN r.reward - greatest(b.reward, t.reward) END AS gain
    FROM lines.reflections f
    JOIN lines.stages s ON (s.run, s.branch, s.iteration, s.stage) = (f.run, f.branch, f.iteration, 'training_rows') AND s.shard IS NOT DISTINCT FROM f.shard
    JOIN lines.trajectories b ON (b.run, b.branch, b.trajectory_id) = (f.run, f.branch, f.base_id)
    JOIN lines.trajectories t ON (t.run, t.branch, t.trajectory_id) = (f.run, f.branch, f.trajectory_id)
    LEFT JOIN lines.retries r ON (r.run, r.branch, r.reflection_id) = (f.run, f.branch, f.reflection_id)
         AND r.status IN ('completed', 'turn_limit', 'context_limit', 'invalid_reply')
    WHERE s.settings ->> '$.method.meta_objective' IS NOT NULL -- older versions weighed every report 1
          AND (f.source = 'policy' OR s.settings ->> '$.method.sft_guidance' = 'any')
),
weighed AS ( -- where nothing was brought, only a right report of success has a row
    SELECT run, branch, reflection_id AS source_id,
           CASE WHEN gain IS NULL THEN coalesce((method ->> '$.meta_success_weight')::DOUBLE, CASE method ->> '$.sft_rule' WHEN 'solved' THEN 1 ELSE 0 END)
                WHEN method ->> '$.meta_objective' = 'sft' THEN 1
                WHEN method ->> '$.meta_objective' = 'rl' THEN gain - avg(gain) OVER (PARTITION BY run, branch, iteration, group_id)
                WHEN status = 'invalid' THEN gain
                WHEN gain > 0 THEN (method ->> '$.meta_gain_weight')::DOUBLE * gain
                ELSE (method ->> '$.meta_valid_weight')::DOUBLE END AS weight
    FROM brought
),
made AS (
    SELECT w.*, s.settings -> '$.method' AS method, n.tokens, n.trained, coalesce(g.size, 1) AS size,
           CASE WHEN w.role IN ('explore', 'refinement') THEN c.advantage
                WHEN w.role = 'reflect' AND method ->> '$.meta_objective' IS NOT NULL THEN q.weight
                WHEN w.role = 'reflect' AND (method ->> '$.train_reflections')::BOOLEAN THEN k.advantage
                WHEN w.term = 'sft' OR w.objective = 'policy_gradient' OR method ->> '$.sft_rule' IS NOT NULL THEN 1
                ELSE r.advantage END AS credited
    FROM lines.training_rows w
    JOIN lines.stages s ON (s.run, s.branch, s.iteration, s.stage) = (w.run, w.branch, w.iteration, 'training_rows') AND s.shard IS NOT DISTINCT FROM w.shard
    JOIN sampled n ON (n.run, n.branch, n.source_id) = (w.run, w.branch, w.source_id)
         AND n.as_role = CASE w.role WHEN 'refinement' THEN 'explore' ELSE w.role END
    LEFT JOIN lines.credit c ON (c.run, c.branch, c.iteration, c.trajectory_id) = (w.run, w.branch, w.iteration, w.source_id)
    LEFT JOIN weighed q ON (q.run, q.branch, q.source_id) = (w.run, w.branch, w.source_id)
    LEFT JOIN rewarded r ON (r.run, r.branch, r.source_id) = (w.run, w.branch, w.source_id)
    LEFT JOIN (SELECT d.run, d.branch, d.reflection_id, e.advantage FROM lines.distilled d -- as a part of the trajectory that it led to
               JOIN lines.credit e ON (e.run, e.branch, e.trajectory_id) = (d.run, d.branch, d.distilled_id)) k
         ON (k.run, k.branch, k.reflection_id) = (w.run, w.branch, w.source_id)
    LEFT JOIN sizes g ON (g.run, g.branch, g.iteration, g.group_id) = (w.run, w.branch, w.iteration, w.group_id)
),
normalised AS (
    SELECT *, CASE WHEN term = 'sft' AND method ->> '$.sft_reduction' <> 'group' OR method ->> '$.loss_normalisation' = 'token' THEN 1
                   WHEN term = 'sft' OR method ->> '$.loss_normalisation' = 'trajectory_unmasked' THEN 1 / (greatest(trained, 1) * size)
                   WHEN role = 'retry' AND method ->> '$.guidance_position' = 'system' THEN 1 / (greatest(trained, 1) * size)
                   WHEN method ->> '$.loss_normalisation' = 'constant' THEN 1 / ((method ->> '$.loss_tokens')::DOUBLE * size)
                   ELSE 1 / (greatest(tokens, 1) * size) END::DOUBLE AS weight
    FROM made WHERE method ->> '$.loss_normalisation' IS NOT NULL
),
spread AS ( -- the advantages of a member's turns on the tokens of their replies
    SELECT t.run, t.branch, t.trajectory_id AS source_id,
           flatten(list(list_transform(t.context_ids, lambda i: 0::FLOAT)
                        || list_transform(t.response_ids, lambda i: c.turn_advantages[t.turn + 1]) ORDER BY t.turn)) AS advantages
    FROM lines.turns t JOIN lines.credit c USING (run, branch, trajectory_id) WHERE c.turn_advantages IS NOT NULL GROUP BY ALL
)
SELECT run, branch, iteration, row_id AS id, 'advantage ' || advantage || ', its credit says ' || coalesce(credited::FLOAT::VARCHAR, 'nothing') AS what
FROM made WHERE coalesce(abs(advantage - credited), 'inf') > 1e-5 * greatest(abs(advantage), 1)
UNION ALL
SELECT w.run, w.branch, w.iteration, w.row_id, 'the advantages of its tokens are not those of its turns'
FROM lines.training_rows w LEFT JOIN spread s USING (run, branch, source_id)
WHERE w.role IN ('explore', 'refinement') AND w.advantages IS DISTINCT FROM s.advantages
UNION ALL
SELECT run, branch, iteration, row_id, 'weight ' || list_max(weights) || ' a token, its normaliser is ' || weight::FLOAT
FROM normalised WHERE len(list_filter(weights, lambda w: w <> 0 AND abs(w / weight - 1) > 1e-5)) > 0
UNION ALL
SELECT run, branch, iteration, row_id, trained_tokens || ' tokens with weight, ' || trained || ' were sampled from its mask on'
FROM made WHERE trained_tokens <> trained AND len(token_ids) > 0
UNION ALL
SELECT w.run, w.branch, w.iteration, w.row_id, 'not the row that it replays'
FROM lines.training_rows w
JOIN lines.training_rows o ON (o.run, o.row_id) = (w.run, regexp_replace(w.row_id, '^iteration=\d+/replay/', '')) AND o.branch IN (w.branch, '')
WHERE w.role = 'replay'
GROUP BY w.run, w.branch, w.iteration, w.row_id
HAVING NOT bool_or((o.token_ids, o.weights, o.advantage, o.advantages) IS NOT DISTINCT FROM (w.token_ids, w.weights, w.advantage, w.advantages));

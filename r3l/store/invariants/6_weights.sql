-- 6. A training row is its trajectory's (or reflection's) tokens; weight lies on sampled reply tokens only, and on none before the pivot.
--    A retry's row is its parent's prefix and its own turns, or its own turns alone where its first context holds everything.
--    The update's scores are one for each trained token of their row, no log-probability above 0.
WITH pieces AS (
    SELECT run, branch, trajectory_id AS source_id, true AS prefixed, turn, context_ids, response_ids FROM lines.turns
    UNION ALL
    SELECT r.run, r.branch, r.retry_id, false, t.turn, t.context_ids, t.response_ids
    FROM lines.retries r JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (r.run, r.branch, r.retry_id)
    UNION ALL -- two joins by keys: one with OR compares every retry with every turn
    SELECT r.run, r.branch, r.retry_id, false, t.turn, t.context_ids, t.response_ids
    FROM lines.retries r JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (r.run, r.branch, r.parent_id) AND t.turn < r.pivot_turn
    UNION ALL
    SELECT run, branch, reflection_id, true, 0, context_ids, response_ids FROM lines.reflections
),
sources AS (
    SELECT run, branch, source_id, prefixed,
           flatten(list(context_ids || response_ids ORDER BY turn)) AS ids,
           flatten(list(list_transform(context_ids, lambda i: -1) || list_transform(response_ids, lambda i: turn) ORDER BY turn)) AS turns
    FROM pieces SEMI JOIN lines.training_rows w USING (run, branch, source_id) -- most turns are of no row
    GROUP BY run, branch, source_id, prefixed
),
placed AS (
    SELECT w.run, w.branch, w.iteration, w.row_id AS id, w.source_id, w.weights, s.turns, s.ids IS NOT NULL AS known,
           w.token_ids = s.ids AS same, coalesce(c.mask_turn, 0) AS mask_turn
    FROM lines.training_rows w
    LEFT JOIN sources s USING (run, branch, source_id)
    LEFT JOIN lines.credit c ON (c.run, c.branch, c.trajectory_id) = (w.run, w.branch, w.source_id) AND w.role = 'explore'
    WHERE w.role <> 'replay' OR s.ids IS NOT NULL
)
SELECT run, branch, iteration, id, CASE WHEN bool_or(known) THEN 'its tokens are not those of ' || source_id
                                        ELSE 'its source ' || source_id || ' is not stored' END AS what
FROM placed GROUP BY run, branch, iteration, id, source_id HAVING NOT coalesce(bool_or(same), false)
UNION ALL
SELECT run, branch, iteration, id, 'weight on a token that was not sampled, or before turn ' || mask_turn FROM placed
WHERE same AND len(list_filter(list_zip(weights, turns), lambda z: z[1] <> 0 AND z[2] < mask_turn)) > 0
UNION ALL
SELECT run, branch, iteration, row_id, 'weights or logprobs are not aligned with token_ids' FROM lines.training_rows
WHERE len(weights) <> len(token_ids) OR len(logprobs) <> len(token_ids)
UNION ALL
SELECT run, branch, iteration, row_id, 'trained_tokens is ' || trained_tokens || ', weights say ' || len(list_filter(weights, lambda w: w <> 0))
FROM lines.training_rows WHERE trained_tokens <> len(list_filter(weights, lambda w: w <> 0))
UNION ALL
SELECT s.run, s.branch, s.iteration, s.row_id, 'scores of ' || len(s.logprobs) || ' log-probabilities, ' || len(s.entropies) || ' entropies and '
       || coalesce(len(s.teacher_logprobs)::VARCHAR, 'no') || ' of a teacher; its row has ' || coalesce(w.trained_tokens, 0) || ' trained tokens'
FROM lines.training_scores s LEFT JOIN lines.training_rows w USING (run, branch, iteration, row_id)
WHERE len(s.logprobs) > 0 AND (w.trained_tokens IS DISTINCT FROM len(s.logprobs) OR len(s.entropies) <> len(s.logprobs)
                               OR coalesce(len(s.teacher_logprobs), len(s.logprobs)) <> len(s.logprobs))
   OR len(list_filter(s.logprobs, lambda x: NOT coalesce(x <= 0, false))) > 0 OR s.cut_tokens > len(s.logprobs);

-- 6. A training row is its trajectory's (or reflection's) tokens; weight lies on sampled reply tokens only, and on none before the pivot.
WITH whole AS (
    SELECT run, branch, trajectory_id AS source_id, turn, context_ids, response_ids FROM lines.turns
    WHERE (run, branch, trajectory_id) NOT IN (SELECT run, branch, retry_id FROM retries)
    UNION ALL
    SELECT t.run, t.branch, r.retry_id, t.turn, t.context_ids, t.response_ids
    FROM retries r JOIN lines.turns t ON (t.run, t.branch) = (r.run, r.branch)
     AND (t.trajectory_id = r.retry_id OR (t.trajectory_id = r.base_id AND t.turn < r.pivot_turn))
    UNION ALL
    SELECT run, branch, reflection_id, 0, context_ids, response_ids FROM lines.reflections
),
sources AS (
    SELECT run, branch, source_id,
           flatten(list(context_ids || response_ids ORDER BY turn)) AS ids,
           flatten(list(list_transform(context_ids, lambda i: -1) || list_transform(response_ids, lambda i: turn) ORDER BY turn)) AS turns
    FROM whole GROUP BY run, branch, source_id
),
placed AS (
    SELECT w.run, w.branch, w.iteration, w.row_id AS id, w.source_id, w.role, w.token_ids, w.weights, w.logprobs, w.trained_tokens, s.ids, s.turns,
           coalesce(c.mask_turn, 0) AS mask_turn
    FROM lines.training_rows w
    LEFT JOIN sources s USING (run, branch, source_id)
    LEFT JOIN lines.credit c ON (c.run, c.branch, c.trajectory_id) = (w.run, w.branch, w.source_id) AND w.role = 'explore'
),
expected AS (
    SELECT run, branch, distilled_id AS trajectory_id, pivot_turn FROM distilled
    UNION ALL
    SELECT run, branch, base_id, min(pivot_turn) FROM distilled GROUP BY run, branch, base_id
)
SELECT run, branch, iteration, id, 'its source ' || source_id || ' is not stored' AS what
FROM placed WHERE ids IS NULL AND role <> 'replay'
UNION ALL
SELECT run, branch, iteration, id, 'its tokens are not those of ' || source_id FROM placed WHERE token_ids <> ids
UNION ALL
SELECT run, branch, iteration, id, 'weights or logprobs are not aligned with token_ids' FROM placed
WHERE len(weights) <> len(token_ids) OR len(logprobs) <> len(token_ids)
UNION ALL
SELECT run, branch, iteration, id, 'weight on a token that was not sampled, or before turn ' || mask_turn FROM placed
WHERE len(list_filter(list_zip(weights, turns), lambda z: z[1] <> 0 AND z[2] < mask_turn)) > 0
UNION ALL
SELECT run, branch, iteration, id, 'trained_tokens is ' || trained_tokens || ', weights say ' || len(list_filter(weights, lambda w: w <> 0)) FROM placed
WHERE trained_tokens <> len(list_filter(weights, lambda w: w <> 0))
UNION ALL
SELECT c.run, c.branch, c.iteration, c.trajectory_id, 'masked before turn ' || c.mask_turn || ', its pivot is ' || coalesce(e.pivot_turn, 0)
FROM lines.credit c LEFT JOIN expected e USING (run, branch, trajectory_id)
WHERE c.mask_turn NOT IN (0, coalesce(e.pivot_turn, 0));

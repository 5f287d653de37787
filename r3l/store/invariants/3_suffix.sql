-- 3. The replies of a distilled suffix are the ids that the engine sampled in the retry, one turn for one turn.
WITH suffix AS (
    SELECT d.run, d.branch, d.iteration, d.distilled_id AS id, t.turn, t.response_ids
    FROM lines.distilled d JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (d.run, d.branch, d.distilled_id) AND t.turn >= d.pivot_turn
),
sampled AS (
    SELECT d.run, d.branch, d.iteration, d.distilled_id AS id, r.turn, r.response_ids
    FROM lines.distilled d JOIN lines.turns r ON (r.run, r.branch, r.trajectory_id) = (d.run, d.branch, d.retry_id)
)
SELECT run, branch, iteration, id, 'turn ' || turn || ': its reply is not what the retry sampled' AS what
FROM suffix FULL JOIN sampled USING (run, branch, iteration, id, turn)
WHERE suffix.response_ids IS DISTINCT FROM sampled.response_ids;

-- One row per trained turn of a group's member: the weight of a token of its reply, its advantage (its own where the method credits turns,
-- else its trajectory's), and the mass that it puts on the loss before reduction: coefficient x weight x advantage, summed over its tokens.
CREATE VIEW lines.turn_credit AS
WITH placed AS (
    SELECT run, branch, trajectory_id, turn, action, valid, len(response_ids) AS tokens,
           sum(len(context_ids) + len(response_ids)) OVER (PARTITION BY run, branch, trajectory_id ORDER BY turn)::BIGINT AS until
    FROM lines.turns
)
SELECT w.run, w.branch, w.iteration, w.group_id, w.source_id AS trajectory_id, t.turn, t.action, t.valid, t.tokens,
       w.weights[t.until] AS weight, coalesce(w.advantages[t.until], w.advantage) AS advantage, w.advantages IS NOT NULL AS own,
       w.coefficient * list_sum(w.weights[t.until - t.tokens + 1 : t.until]) * coalesce(w.advantages[t.until], w.advantage) AS mass
FROM lines.training_rows w
JOIN placed t ON (t.run, t.branch, t.trajectory_id) = (w.run, w.branch, w.source_id)
WHERE w.role IN ('explore', 'refinement') AND t.tokens > 0 AND w.weights[t.until] <> 0;

-- Counterfactual credit: what other settings would have given the stored rollouts (settings as in r3l/config/methods/__init__.py).
CREATE MACRO credit_as(scale := 'std', amplify := true, top_rule := 'group_max', alpha := 3.0, top_value := NULL, success_threshold := 1.0)
AS TABLE
WITH member AS (
    SELECT run, branch, iteration, group_id, task, trajectory_id, kind, reward::DOUBLE - penalty AS r,
           count(*) OVER w AS size, avg(r) OVER w AS mean, coalesce(stddev_samp(r) OVER w, 0) AS std,
           min(r) OVER w AS low, max(r) OVER w AS high
    FROM credit
    WINDOW w AS (PARTITION BY run, branch, iteration, group_id)
),
scaled_member AS (
    SELECT *, CASE WHEN low = high THEN 0 WHEN scale = 'std' THEN (r - mean) / (std + 1e-6) ELSE r - mean END AS scaled,
           CASE top_rule WHEN 'group_max' THEN low < high AND r = high WHEN 'success' THEN r >= success_threshold ELSE false END AS is_top
    FROM member
)
SELECT run, branch, iteration, group_id, task, trajectory_id, kind, r AS reward, scaled,
       (CASE WHEN size = 1 THEN 0 WHEN NOT amplify THEN scaled WHEN is_top THEN coalesce(top_value, alpha)
             WHEN scaled > 0 THEN alpha * scaled ELSE scaled END)::DOUBLE AS advantage
FROM scaled_member;

CREATE MACRO credit_paper(alpha) AS TABLE FROM credit_as(alpha := alpha);

CREATE MACRO credit_released() AS TABLE FROM credit_as(scale := 'none', top_rule := 'success', top_value := 1.0);

CREATE MACRO credit_grpo() AS TABLE FROM credit_as(amplify := false);

CREATE MACRO mask_turns(pivot_mask := 'both') AS TABLE
SELECT c.run, c.branch, c.iteration, c.trajectory_id,
       CASE WHEN pivot_mask = 'off' OR (pivot_mask = 'retry_only' AND c.kind = 'base') THEN 0 ELSE coalesce(d.shared, 0) END AS mask_turn
FROM credit c
LEFT JOIN (
    SELECT run, branch, iteration, distilled_id AS trajectory_id, coalesce(shared_turns, pivot_turn) AS shared
    FROM distilled SEMI JOIN credit USING (run, branch, iteration, trajectory_id)
    UNION ALL
    SELECT run, branch, iteration, base_id, min(coalesce(shared_turns, pivot_turn))
    FROM distilled SEMI JOIN credit USING (run, branch, iteration, trajectory_id) GROUP BY ALL
) d USING (run, branch, iteration, trajectory_id);

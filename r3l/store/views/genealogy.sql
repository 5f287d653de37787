-- Where a trajectory comes from and where it went: task, base, reflection, retry, distilled, credit, training row, optimiser step, policy.
CREATE VIEW lines.genealogy AS
WITH reasons AS (
    SELECT run, branch, iteration, subject_id, string_agg(stage || ' ' || event || ': ' || reason, '; ' ORDER BY stage) AS events
    FROM lines.events GROUP BY run, branch, iteration, subject_id
)
SELECT t.run, t.branch, t.iteration, t.shard, t.trajectory_id, t.kind, t.status, t.reason, t.reward, t.success, t.turns,
       t.task, t.task_id, t.task_type, k.environment, k.split, t.group_id,
       CASE t.kind WHEN 'base' THEN t.trajectory_id ELSE t.base_id END AS base_id, t.parent_id, t.reflection_id,
       CASE t.kind WHEN 'retry' THEN t.trajectory_id ELSE t.retry_id END AS retry_id,
       CASE t.kind WHEN 'retry' THEN d.distilled_id WHEN 'distilled' THEN t.trajectory_id END AS distilled_id,
       b.reward AS base_reward, f.source AS guidance, f.level AS hint_level, f.policy AS guided_by, f.status AS reflection_status, f.outcome, TRY(f.report ->> '$.root_cause_analysis') AS root_cause,
       TRY(f.report ->> '$.improvement_suggestion') AS suggestion, t.pivot_asked, t.pivot_turn, t.shared_turns,
       c.group_size, c.group_mean, c.group_std, c.penalty, c.scaled, c.rule, c.advantage, c.turn_advantages, c.mask_turn,
       w.row_id, w.role, w.term, w.objective, w.reduction, w.coefficient, w.advantage AS row_advantage, w.trained_tokens,
       list_max(w.weights) AS weight, e.events, t.policy AS sampled_by, u.step, u.parent_policy, u.policy AS written_policy, u.path AS written_path
FROM lines.trajectories t
LEFT JOIN lines.tasks k USING (run, branch, iteration, task)
LEFT JOIN lines.distilled d ON (d.run, d.branch, d.iteration, d.retry_id) = (t.run, t.branch, t.iteration, t.trajectory_id)
LEFT JOIN lines.base b ON (b.run, b.branch, b.iteration, b.base_id) = (t.run, t.branch, t.iteration, coalesce(t.base_id, t.trajectory_id))
LEFT JOIN lines.reflections f ON (f.run, f.branch, f.iteration, f.reflection_id) = (t.run, t.branch, t.iteration, t.reflection_id)
LEFT JOIN lines.credit c ON (c.run, c.branch, c.iteration, c.trajectory_id) = (t.run, t.branch, t.iteration, t.trajectory_id)
LEFT JOIN lines.training_rows w ON (w.run, w.branch, w.iteration, w.source_id) = (t.run, t.branch, t.iteration, t.trajectory_id)
LEFT JOIN reasons e ON (e.run, e.branch, e.iteration, e.subject_id) = (t.run, t.branch, t.iteration, t.trajectory_id)
LEFT JOIN (FROM lines.updates QUALIFY step = max(step) OVER (PARTITION BY run, branch, iteration)) u -- the last step wrote the policy
    ON (u.run, u.branch, u.iteration) = (t.run, t.branch, t.iteration);

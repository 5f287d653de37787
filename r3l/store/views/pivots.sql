-- One row per retry: the base it goes back to, the reflection that chose the pivot, what came of it, and its distilled trajectory.
CREATE VIEW lines.pivots AS
SELECT r.run, r.branch, r.iteration, r.shard, r.task, r.task_id, r.task_type, r.group_id,
       r.base_id, r.parent_id, r.reflection_id, r.retry_id, d.distilled_id,
       f.outcome, f.pivot_asked, r.pivot_turn, r.shared_turns, r.pivot_turn / nullif(p.turns, 0)::DOUBLE AS pivot_fraction,
       b.reward AS base_reward, r.reward AS retry_reward, d.reward AS distilled_reward, r.reward - b.reward AS gain,
       b.success AS base_success, r.success AS retry_success,
       b.turns AS base_turns, r.turns AS retry_turns, r.status AS retry_status, r.reason AS retry_reason
FROM lines.retries r
JOIN lines.base b USING (run, branch, iteration, base_id)
LEFT JOIN (SELECT run, branch, iteration, trajectory_id AS parent_id, turns FROM lines.trajectories) p USING (run, branch, iteration, parent_id)
LEFT JOIN lines.reflections f USING (run, branch, iteration, reflection_id)
LEFT JOIN lines.distilled d USING (run, branch, iteration, retry_id);

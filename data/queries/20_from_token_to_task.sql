-- Why was this token trained with this weight: from the heaviest token of each row back to the reflection and the task?
SELECT t.run, t.row_id, list_position(t.weights, list_max(t.weights)) AS token, round(list_max(t.weights), 6) AS weight, round(t.advantage, 3) AS advantage,
       c.rule, c.mask_turn, d.retry_id, d.reflection_id, d.base_id, k.task_id, u.step, u.policy
FROM training_rows t
LEFT JOIN credit c ON (c.run, c.branch, c.iteration, c.trajectory_id) = (t.run, t.branch, t.iteration, t.source_id)
LEFT JOIN distilled d ON (d.run, d.branch, d.iteration, d.distilled_id) = (t.run, t.branch, t.iteration, t.source_id)
LEFT JOIN tasks k ON (k.run, k.branch, k.iteration, k.task) = (t.run, t.branch, t.iteration, c.task)
LEFT JOIN (FROM updates QUALIFY step = max(step) OVER (PARTITION BY run, branch, iteration)) u ON (u.run, u.branch, u.iteration) = (t.run, t.branch, t.iteration)
ORDER BY t.run, weight DESC, t.row_id
LIMIT 50;

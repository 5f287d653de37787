-- Which rule gave which advantage, and how much weight did each put on the loss?
SELECT c.run, c.kind, c.rule, count(*) AS members, round(avg(c.advantage), 3) AS advantage, sum(t.trained_tokens) AS trained_tokens,
       round(sum(c.advantage * list_sum(t.weights)), 4) AS advantage_mass
FROM credit c
LEFT JOIN training_rows t ON (t.run, t.branch, t.iteration, t.source_id) = (c.run, c.branch, c.iteration, c.trajectory_id)
GROUP BY c.run, c.kind, c.rule
ORDER BY c.run, members DESC, c.kind, c.rule;

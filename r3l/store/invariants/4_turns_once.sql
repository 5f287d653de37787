-- 4. Every turn appears once, the pivot's observation too: turns are numbered 0, 1, 2 ... (of a retry: from the pivot), none twice.
SELECT t.run, t.branch, t.iteration, t.trajectory_id AS id,
       'has turns ' || min(n.turn) || '..' || max(n.turn) || ' in ' || count(*) || ' rows, expected '
       || coalesce(any_value(t.first_turn), 0) || '..' || any_value(t.turns) - 1 AS what
FROM (SELECT *, CASE kind WHEN 'retry' THEN pivot_turn ELSE 0 END AS first_turn FROM lines.trajectories) t
JOIN lines.turns n ON (n.run, n.branch, n.trajectory_id) = (t.run, t.branch, t.trajectory_id)
GROUP BY t.run, t.branch, t.iteration, t.trajectory_id
HAVING count(*) <> count(DISTINCT n.turn) OR min(n.turn) <> any_value(t.first_turn) OR max(n.turn) <> any_value(t.turns) - 1
    OR count(*) <> any_value(t.turns) - any_value(t.first_turn);

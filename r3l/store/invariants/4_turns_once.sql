-- 4. Every turn appears once, the pivot's observation too: turns are numbered 0, 1, 2 ... (of a retry or continuation: from the pivot), none twice.
WITH expected AS (
    SELECT run, branch, iteration, trajectory_id, turns, CASE WHEN kind IN ('retry', 'continuation') THEN coalesce(pivot_turn, 0) ELSE 0 END AS first_turn
    FROM lines.trajectories
)
SELECT e.run, e.branch, e.iteration, e.trajectory_id AS id,
       'turns ' || coalesce(min(n.turn) || '..' || max(n.turn), 'none') || ' in ' || count(n.turn) || ' rows, expected '
       || any_value(e.first_turn) || '..' || any_value(e.turns) - 1 AS what
FROM expected e
LEFT JOIN lines.turns n ON (n.run, n.branch, n.trajectory_id) = (e.run, e.branch, e.trajectory_id)
GROUP BY e.run, e.branch, e.iteration, e.trajectory_id
HAVING count(n.turn) <> greatest(any_value(e.turns - e.first_turn), 0) OR count(n.turn) <> count(DISTINCT n.turn)
    OR min(n.turn) <> any_value(e.first_turn) OR max(n.turn) <> any_value(e.turns) - 1;

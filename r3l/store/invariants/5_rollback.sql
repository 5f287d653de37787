-- 5. Where a retry began, the environment said what it had said to the parent: rolled back, or recorded as diverged.
SELECT r.run, r.branch, r.iteration, r.retry_id AS id, 'turn ' || t.turn || ': not the observation that its parent had' AS what
FROM retries r
JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id, t.turn) = (r.run, r.branch, r.retry_id, r.pivot_turn)
JOIN lines.turns b ON (b.run, b.branch, b.trajectory_id, b.turn) = (r.run, r.branch, r.parent_id, r.pivot_turn)
WHERE r.status <> 'diverged' AND t.observation_hash <> b.observation_hash
UNION ALL
SELECT d.run, d.branch, d.iteration, d.distilled_id, 'turn ' || t.turn || ': not the observation that its parent had'
FROM distilled d
JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (d.run, d.branch, d.distilled_id) AND t.turn < d.pivot_turn
JOIN lines.turns b ON (b.run, b.branch, b.trajectory_id, b.turn) = (d.run, d.branch, d.parent_id, t.turn)
WHERE t.observation_hash <> b.observation_hash;

-- One row per readable reflection on a failed base that an oracle judged: the turn it named against the oracle's. accurate: the same turn;
-- partial: within three; misdiagnosed: farther, or the failure was called a success. agrees: within one. retry_success is null where no
-- whole retry came of it.
CREATE VIEW lines.diagnoses AS
SELECT f.run, f.branch, f.iteration, f.shard, f.task, f.group_id, f.base_id, f.reflection_id, f.outcome, f.pivot_asked,
       o.pivot_turn AS oracle_pivot, o.why AS oracle_why, abs(f.pivot_asked - o.pivot_turn) AS distance,
       CASE WHEN f.outcome = 'success' OR distance > 3 THEN 'misdiagnosed' WHEN distance > 0 THEN 'partial' ELSE 'accurate' END AS diagnosis,
       f.outcome <> 'success' AND distance <= 1 AS agrees, p.retry_id,
       CASE WHEN p.retry_status IN ('completed', 'turn_limit', 'context_limit', 'invalid_reply') THEN p.retry_success END AS retry_success
FROM lines.reflections f
JOIN lines.oracle_pivots o USING (run, branch, iteration, trajectory_id)
LEFT JOIN lines.pivots p USING (run, branch, iteration, reflection_id)
WHERE f.status = 'parsed' AND f.outcome IS NOT NULL AND f.pivot_asked IS NOT NULL AND o.pivot_turn IS NOT NULL;

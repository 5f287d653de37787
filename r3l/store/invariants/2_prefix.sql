-- 2. The prefix of a distilled trajectory is its parent's (the base, or an earlier distilled trajectory of it), token for token.
SELECT d.run, d.branch, d.iteration, d.distilled_id AS id, 'turn ' || b.turn || ': ' ||
       CASE WHEN t.turn IS NULL THEN 'missing from the prefix' ELSE 'its token ids are not those of its parent' END AS what
FROM lines.distilled d
JOIN lines.turns b ON (b.run, b.branch, b.trajectory_id) = (d.run, d.branch, d.parent_id) AND b.turn < d.pivot_turn
LEFT JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id, t.turn) = (d.run, d.branch, d.distilled_id, b.turn)
WHERE t.turn IS NULL OR t.context_ids <> b.context_ids OR t.response_ids <> b.response_ids;

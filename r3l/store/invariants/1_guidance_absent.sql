-- 1. No distilled row holds guidance: its contexts are its parent's up to the pivot and the retry's after it, token for token, and none of
--    its observations quotes a text of its reflection that neither the base nor the task had shown. What else may hold it: r3l/judge/guidance.py.
WITH quotes AS (
    SELECT run, branch, reflection_id, unnest([report ->> '$.improvement_suggestion', report ->> '$.root_cause_analysis',
                                               report ->> '$.trajectory_summary']) AS quote
    -- What an invalid reflection holds need not be JSON.
    FROM (SELECT run, branch, reflection_id, CASE WHEN json_valid(report) THEN report::JSON END AS report FROM lines.reflections)
)
SELECT d.run, d.branch, d.iteration, d.distilled_id AS id,
       'turn ' || t.turn || ': its context is not that of its parent' AS what
FROM lines.distilled d
JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (d.run, d.branch, d.distilled_id)
JOIN lines.turns b ON (b.run, b.branch, b.trajectory_id, b.turn) = (d.run, d.branch, d.parent_id, t.turn)
WHERE t.turn <= d.pivot_turn AND t.context_ids <> b.context_ids
UNION ALL
SELECT d.run, d.branch, d.iteration, d.distilled_id, 'turn ' || t.turn || ': its context is not that of the retry'
FROM lines.distilled d
JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (d.run, d.branch, d.distilled_id)
JOIN lines.turns r ON (r.run, r.branch, r.trajectory_id, r.turn) = (d.run, d.branch, d.retry_id, t.turn)
WHERE t.turn > d.pivot_turn AND t.context_ids <> r.context_ids
UNION ALL
SELECT d.run, d.branch, d.iteration, d.distilled_id, 'turn ' || t.turn || ': its observation quotes the reflection'
FROM lines.distilled d
JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (d.run, d.branch, d.distilled_id)
JOIN quotes q ON (q.run, q.branch, q.reflection_id) = (d.run, d.branch, d.reflection_id)
WHERE length(q.quote) >= 20 AND contains(t.observation, q.quote)
  AND NOT EXISTS (FROM lines.turns o WHERE (o.run, o.branch, o.trajectory_id) = (d.run, d.branch, d.base_id) AND contains(o.observation, q.quote));

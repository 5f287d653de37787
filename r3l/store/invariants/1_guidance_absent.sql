-- 1. No distilled row holds guidance: its contexts are its parent's up to the pivot and the retry's after it, token for token,
--    none of its observations quotes a text of its reflection that neither the base nor the task had shown, and none of its contexts holds
--    ids that only the guidance can have brought: 16 in a row of the reflection, or of the retry's guided context, that stand in no
--    context of its group's bases and parents, in no prompt of the reflector, and in no reply.
WITH guided AS (
    SELECT d.run, d.branch, d.iteration, d.distilled_id, t.context_ids AS ids
    FROM lines.distilled d JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id, t.turn) = (d.run, d.branch, d.retry_id, d.pivot_turn)
    UNION ALL
    SELECT d.run, d.branch, d.iteration, d.distilled_id, f.response_ids
    FROM lines.distilled d JOIN lines.reflections f ON (f.run, f.branch, f.reflection_id) = (d.run, d.branch, d.reflection_id)
),
pieces AS ( -- every eighth run of 16: of 23 ids in a row, one is found
    SELECT run, branch, iteration, distilled_id, unnest(list_transform(range(1, len(ids) - 14, 8), lambda k: ids[k : k + 15])) AS ids FROM guided
),
grown AS ( -- of each context after the pivot's, from where on it is new: what it repeats was looked at in the turn before
    SELECT run, branch, distilled_id, turn, ids, CASE WHEN ids[: len(before)] = before THEN greatest(1, len(before) - 14) ELSE 1 END AS first
    FROM (SELECT d.run, d.branch, d.distilled_id, d.pivot_turn, t.turn, t.context_ids AS ids,
                 lag(t.context_ids) OVER (PARTITION BY d.run, d.branch, d.distilled_id ORDER BY t.turn) AS before
          FROM lines.distilled d JOIN lines.turns t ON (t.run, t.branch, t.trajectory_id) = (d.run, d.branch, d.distilled_id) AND t.turn >= d.pivot_turn)
    WHERE turn > pivot_turn
),
found AS (
    SELECT DISTINCT run, branch, iteration, distilled_id, turn, ids
    FROM (SELECT run, branch, distilled_id, turn, unnest(list_transform(range(first, len(ids) - 14), lambda k: ids[k : k + 15])) AS ids FROM grown) shown
    JOIN pieces USING (run, branch, distilled_id, ids)
),
said AS ( -- `whose`: of contexts, the trajectory; the bases' are known to the whole group, a parent's to what grew from it
    SELECT t.run, t.branch, b.group_id, CASE WHEN b.kind <> 'base' THEN b.trajectory_id END AS whose, t.context_ids AS ids
    FROM lines.turns t JOIN lines.trajectories b USING (run, branch, trajectory_id) WHERE b.kind IN ('base', 'distilled')
    UNION ALL
    SELECT t.run, t.branch, b.group_id, NULL, t.response_ids FROM lines.turns t JOIN lines.trajectories b USING (run, branch, trajectory_id)
    UNION ALL
    SELECT run, branch, group_id, NULL, context_ids FROM lines.reflections
),
known AS (
    SELECT f.run, f.branch, f.distilled_id, f.turn, f.ids
    FROM found f JOIN lines.distilled d USING (run, branch, distilled_id)
    JOIN said s ON (s.run, s.branch, s.group_id) = (d.run, d.branch, d.group_id) AND coalesce(s.whose, d.parent_id) = d.parent_id
    -- first where their first id stands, which costs little: else the runs of a whole context would be cut out to compare them
    WHERE len(list_filter(list_filter(range(1, len(s.ids) - 14), lambda k: s.ids[k] = f.ids[1]), lambda k: s.ids[k : k + 15] = f.ids)) > 0
),
quotes AS (
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
  AND NOT EXISTS (FROM lines.turns o WHERE (o.run, o.branch, o.trajectory_id) = (d.run, d.branch, d.base_id) AND contains(o.observation, q.quote))
UNION ALL
SELECT run, branch, iteration, distilled_id, 'turn ' || turn || ': its context holds ids that only the guidance can have brought'
FROM found ANTI JOIN known USING (run, branch, distilled_id, turn, ids) GROUP BY ALL;

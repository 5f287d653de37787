-- 10. Guidance is of the source that the settings ask for, and says who wrote it: the policy that played the retry, another one, or none.
--     What the policy did not write gives no meta-task row, nor does a retry under it, unless the settings say so (sft_guidance).
WITH asked AS (
    SELECT s.run, s.branch, s.iteration, s.shard, s.settings ->> '$.plan.guidance' AS guidance FROM lines.stages s WHERE s.stage = 'reflections'
),
written AS (
    SELECT f.*, CASE WHEN a.guidance IN ('oracle', 'hint', 'teacher') THEN a.guidance ELSE 'policy' END AS expected
    FROM lines.reflections f
    JOIN asked a ON (a.run, a.branch, a.iteration) = (f.run, f.branch, f.iteration) AND a.shard IS NOT DISTINCT FROM f.shard
    WHERE a.guidance IS NOT NULL -- the oldest versions stored no plan
),
lessons AS ( -- a meta-task row, with the reflection that it is, or that guided it
    SELECT w.run, w.branch, w.iteration, w.row_id, w.role, coalesce(r.reflection_id, w.source_id) AS reflection_id,
           coalesce(s.settings ->> '$.method.sft_guidance', 'own') AS sft_guidance
    FROM lines.training_rows w
    JOIN lines.stages s ON (s.run, s.branch, s.iteration, s.stage) = (w.run, w.branch, w.iteration, 'training_rows') AND s.shard IS NOT DISTINCT FROM w.shard
    LEFT JOIN lines.retries r ON (r.run, r.branch, r.retry_id) = (w.run, w.branch, w.source_id)
    WHERE w.role IN ('reflect', 'retry')
)
SELECT run, branch, iteration, reflection_id AS id, 'written by ' || source || ', the settings ask for ' || expected AS what
FROM written WHERE source <> expected
UNION ALL
SELECT f.run, f.branch, f.iteration, f.reflection_id, 'said to be the policy''s own, and written by ' || f.policy || ', where ' || r.policy || ' played the retry'
FROM lines.reflections f JOIN lines.retries r ON (r.run, r.branch, r.reflection_id) = (f.run, f.branch, f.reflection_id)
WHERE f.source = 'policy' AND f.policy <> r.policy
  -- A replay may play the retries of stored reflections with another policy: its branch has retries of its own, and takes the reflections over.
  AND (EXISTS (FROM stages s WHERE (s.run, s.branch, s.iteration, s.stage) = (f.run, f.branch, f.iteration, 'reflections'))
       OR NOT EXISTS (FROM stages s WHERE (s.run, s.branch, s.iteration, s.stage) = (f.run, f.branch, f.iteration, 'retries')))
UNION ALL
SELECT run, branch, iteration, reflection_id, 'written by the ' || source || ', and has tokens or a policy'
FROM lines.reflections WHERE source IN ('oracle', 'hint') AND (policy <> '' OR len(response_ids) > 0 OR len(context_ids) > 0)
UNION ALL
SELECT run, branch, iteration, reflection_id, 'written by a teacher that it does not name' FROM lines.reflections
WHERE source = 'teacher' AND status IN ('parsed', 'invalid') AND policy = ''
UNION ALL
SELECT l.run, l.branch, l.iteration, l.row_id, 'a ' || l.role || ' row of guidance that the ' || f.source || ' wrote'
FROM lessons l JOIN lines.reflections f ON (f.run, f.branch, f.reflection_id) = (l.run, l.branch, l.reflection_id)
WHERE f.source <> 'policy' AND l.sft_guidance <> 'any';

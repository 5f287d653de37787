-- Conservation: every attempt was trained on, led to a trained one, or was dropped with a reason. Only iterations whose training rows are made.
CREATE VIEW lines.account AS
WITH trained AS (SELECT DISTINCT run, branch, iteration, source_id AS id FROM lines.training_rows),
reasons AS (SELECT DISTINCT run, branch, iteration, subject_id AS id FROM lines.events
            WHERE reason <> '' AND event NOT IN ('engine_retry', 'engine_restarted', 'worker_restarted', 'canary')),
made AS (SELECT DISTINCT run, branch, iteration FROM lines.stages WHERE stage = 'training_rows'),
attempts AS (
    SELECT run, branch, iteration, 'base' AS stage, base_id AS id, NULL::VARCHAR AS led_to FROM lines.base
    UNION ALL
    SELECT run, branch, iteration, 'reflections', reflection_id, retry_id FROM lines.reflections
    LEFT JOIN (SELECT run, branch, iteration, reflection_id, min(retry_id) AS retry_id FROM lines.retries GROUP BY ALL)
        USING (run, branch, iteration, reflection_id)
    UNION ALL
    SELECT r.run, r.branch, r.iteration, 'retries', r.retry_id, d.distilled_id FROM lines.retries r
    LEFT JOIN lines.distilled d USING (run, branch, iteration, retry_id)
    UNION ALL
    SELECT run, branch, iteration, 'distilled', distilled_id, NULL FROM lines.distilled
    UNION ALL -- one that ended by itself counts in the advantages of its base
    SELECT run, branch, iteration, 'continuations', continuation_id,
           CASE WHEN status IN ('completed', 'turn_limit', 'context_limit', 'invalid_reply') THEN base_id END
    FROM lines.continuations
)
SELECT run, branch, iteration, stage, count(*) AS attempts,
       count(*) FILTER (t.id IS NOT NULL) AS trained,
       count(*) FILTER (t.id IS NULL AND led_to IS NOT NULL) AS led_on,
       count(*) FILTER (t.id IS NULL AND led_to IS NULL AND e.id IS NOT NULL) AS dropped,
       count(*) FILTER (t.id IS NULL AND led_to IS NULL AND e.id IS NULL) AS unaccounted
FROM attempts
JOIN made USING (run, branch, iteration)
LEFT JOIN trained t USING (run, branch, iteration, id)
LEFT JOIN reasons e USING (run, branch, iteration, id)
GROUP BY run, branch, iteration, stage;

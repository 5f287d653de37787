-- What became of reflections: by the outcome they claim, how often did the base really win, and did the retry help?
SELECT f.status, f.outcome, count(*) AS reflections, round(avg(b.success::INTEGER), 3) AS base_won,
       count(p.retry_id) AS retried, round(avg((p.gain > 0)::INTEGER), 3) AS retry_improved
FROM lines.reflections f
JOIN base b USING (run, branch, iteration, base_id)
LEFT JOIN pivots p USING (run, branch, iteration, reflection_id)
WHERE f.branch = ''
GROUP BY f.status, f.outcome
ORDER BY reflections DESC, f.status, f.outcome;

-- How good are reflections: by claimed outcome, how often did the base succeed, and did the retry help?
SELECT run, f.status, f.outcome, count(*) AS reflections, round(avg(b.success::INTEGER), 3) AS base_won,
       count(p.retry_id) AS retried, round(avg((p.gain > 0)::INTEGER), 3) AS retry_improved
FROM reflections f
JOIN base b USING (run, branch, iteration, base_id)
LEFT JOIN pivots p USING (run, branch, iteration, reflection_id)
GROUP BY run, f.status, f.outcome
ORDER BY run, reflections DESC, f.status, f.outcome;

-- Which kinds of task are hard, and where do retries help?
SELECT run, b.task_type, count(*) AS bases, round(avg(b.success::INTEGER), 3) AS base_success, count(p.retry_id) AS retries,
       round(avg(p.retry_success::INTEGER), 3) AS retry_success, round(avg(p.gain), 3) AS mean_gain
FROM base b
LEFT JOIN pivots p USING (run, branch, iteration, base_id)
GROUP BY run, b.task_type
ORDER BY run, base_success, b.task_type;

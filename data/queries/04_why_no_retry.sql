-- Why was no retry run, and was that right?
SELECT f.decision, count(*) AS reflections, round(avg(b.reward), 3) AS base_reward
FROM lines.reflections f
JOIN base b USING (run, branch, iteration, base_id)
WHERE f.branch = '' AND f.decision <> 'retry'
GROUP BY f.decision
ORDER BY reflections DESC, f.decision;

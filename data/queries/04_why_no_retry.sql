-- Why was no retry run, and was that right?
SELECT run, f.decision, count(*) AS reflections, round(avg(b.reward), 3) AS base_reward
FROM reflections f
JOIN base b USING (run, branch, iteration, base_id)
WHERE f.decision <> 'retry'
GROUP BY run, f.decision
ORDER BY run, reflections DESC, f.decision;

-- Does a task that was seen in several iterations get better?
SELECT run, task_id, count(DISTINCT iteration) AS iterations, round(avg(reward) FILTER (iteration = first), 3) AS first_reward,
       round(avg(reward) FILTER (iteration = last), 3) AS last_reward
FROM (SELECT *, min(iteration) OVER w AS first, max(iteration) OVER w AS last FROM base WINDOW w AS (PARTITION BY run, task_id))
GROUP BY run, task_id
ORDER BY run, last_reward - first_reward DESC, task_id
LIMIT 50;

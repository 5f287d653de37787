-- How do attempts end, by kind?
SELECT run, kind, status, count(*) AS attempts, round(avg(reward), 3) AS reward, round(avg(turns), 1) AS turns
FROM trajectories
GROUP BY run, kind, status
ORDER BY run, kind, attempts DESC, status;

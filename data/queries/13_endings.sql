-- How do attempts end, by their kind?
SELECT kind, status, count(*) AS attempts, round(avg(reward), 3) AS reward, round(avg(turns), 1) AS turns
FROM lines.trajectories
WHERE branch = ''
GROUP BY kind, status
ORDER BY kind, attempts DESC, status;

-- What did not go the straight way, and why?
SELECT run, stage, event, reason, count(*) AS times
FROM events
GROUP BY run, stage, event, reason
ORDER BY run, times DESC, stage, event, reason
LIMIT 50;

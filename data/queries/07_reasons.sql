-- Which attempts were dropped, skipped or repeated, and why?
SELECT run, stage, event, reason, count(*) AS times
FROM events
GROUP BY run, stage, event, reason
ORDER BY run, times DESC, stage, event, reason
LIMIT 50;

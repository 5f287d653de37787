-- What did not go the straight way, and why?
SELECT stage, event, reason, count(*) AS times
FROM events
WHERE branch = ''
GROUP BY stage, event, reason
ORDER BY times DESC, stage, event, reason
LIMIT 50;

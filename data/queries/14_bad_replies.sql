-- Where in an episode do replies lose the format?
SELECT t.turn, count(*) AS replies, count(*) FILTER (NOT t.valid) AS invalid, round(avg((NOT t.valid)::INTEGER), 3) AS share
FROM turns t
WHERE t.branch = ''
GROUP BY t.turn
ORDER BY t.turn;

-- Where in an episode do replies lose the format?
SELECT run, t.turn, count(*) AS replies, count(*) FILTER (NOT t.valid) AS invalid, round(avg((NOT t.valid)::INTEGER), 3) AS share
FROM turns t
GROUP BY run, t.turn
ORDER BY run, t.turn;

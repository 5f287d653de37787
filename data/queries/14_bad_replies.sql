-- At which turns of an episode are replies malformed?
SELECT run, t.turn, count(*) AS replies, count(*) FILTER (NOT t.valid) AS invalid, round(avg((NOT t.valid)::INTEGER), 3) AS share
FROM turns t
GROUP BY run, t.turn
ORDER BY run, t.turn;

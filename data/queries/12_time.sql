-- Where does the time go: seconds, rows and bytes per stage of an iteration?
SELECT run, stage, count(*) AS shards, round(avg(seconds), 2) AS seconds_each, round(sum(seconds), 1) AS seconds, sum(rows) AS rows, sum(bytes) AS bytes
FROM stages
GROUP BY run, stage
ORDER BY run, seconds DESC NULLS LAST, stage;

-- How do branches differ from their run: advantages, rows, tokens?
SELECT c.run, c.branch, c.iteration, count(*) AS members, round(avg(abs(c.advantage)), 4) AS mean_size,
       round(max(abs(c.advantage - m.advantage)), 4) AS largest_change, count(*) FILTER (c.advantage <> m.advantage) AS changed
FROM lines.credit c
JOIN lines.credit m ON (m.run, m.iteration, m.trajectory_id) = (c.run, c.iteration, c.trajectory_id) AND m.branch = ''
WHERE c.branch <> ''
GROUP BY ALL
ORDER BY ALL;

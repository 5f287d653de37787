-- How many groups give a gradient: mixed rewards among the bases alone, and with the distilled trajectories?
SELECT g.run, g.branch, g.iteration, count(*) AS groups, count(*) FILTER (b.low < b.high) AS mixed_by_bases, count(*) FILTER (g.mixed) AS mixed
FROM groups g
LEFT JOIN (SELECT run, branch, iteration, group_id, min(reward) AS low, max(reward) AS high FROM base GROUP BY ALL) b
    USING (run, branch, iteration, group_id)
GROUP BY ALL
ORDER BY ALL;

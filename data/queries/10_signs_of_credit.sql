-- Do successes outweigh failures: positive against negative advantage mass per iteration?
SELECT run, branch, iteration, round(sum(positive_mass), 3) AS positive, round(sum(negative_mass), 3) AS negative,
       round(sum(positive_mass) / nullif(sum(negative_mass), 0), 2) AS ratio
FROM groups
GROUP BY ALL
ORDER BY ALL;

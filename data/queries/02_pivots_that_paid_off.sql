-- Which pivots paid off: does it matter how far back a retry goes?
SELECT run, pivot_turn, count(*) AS retries, round(avg((gain > 0)::INTEGER), 3) AS improved, round(avg(gain), 3) AS mean_gain,
       round(avg(base_turns), 1) AS base_turns
FROM pivots
GROUP BY run, pivot_turn
ORDER BY run, pivot_turn;

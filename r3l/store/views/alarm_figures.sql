-- What the alarms watch, one row per iteration, branch and alarm: its figure, and of how many it is one. Held-out success has the starting
-- policy as iteration -1. step share: the shortest step of the update, 1 where the drift kept its bound. new words: share of base actions
-- with a word that no observation of the run has, and no action of its first iteration. no credit: share of groups without an advantage.
CREATE VIEW lines.alarm_figures AS
WITH began AS (SELECT run, branch, min(iteration) AS start FROM lines.stages WHERE stage = 'base' GROUP BY run, branch),
shown AS ( -- one text once: a world says the same often
    SELECT run, branch, unnest(regexp_extract_all(lower(text), '\p{L}{2,}')) AS word
    FROM (SELECT DISTINCT run, branch, observation || CASE iteration WHEN start THEN ' ' || action ELSE '' END AS text
          FROM lines.turns JOIN began USING (run, branch))
),
words AS (
    SELECT run, branch, list(DISTINCT word) AS words FROM shown GROUP BY run, branch
),
acted AS ( -- only where the observations are still stored
    SELECT run, branch, iteration, action, count(*) AS times
    FROM lines.turns WHERE observation <> '' AND action <> '' AND trajectory_id IN (SELECT base_id FROM lines.base) GROUP BY ALL
)
SELECT run, branch, iteration, 'guided retries' AS alarm, $retry_improvement_failed AS figure, count(*) FILTER (NOT base_success) AS count
FROM (SELECT r.run, r.branch, r.iteration, r.reward - b.reward AS gain, b.success AS base_success -- as `pivots` has them
      FROM lines.retries r JOIN lines.base b USING (run, branch, iteration, base_id)) GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'parse rate', $parse_rate, count(*) FROM lines.reflections GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'entropy', $entropy, count(*) FROM lines.updates GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'drift', min(step_share), count(*) FROM lines.updates GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'held-out success', $evaluation_success, count(*) FROM lines.held_out GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'no credit', avg((positive_mass + negative_mass = 0)::INTEGER), count(*) FROM lines.groups GROUP BY ALL
UNION ALL
SELECT run, branch, iteration, 'new words',
       coalesce(sum(times) FILTER (NOT list_has_all(words, regexp_extract_all(lower(action), '\p{L}{2,}'))), 0) / sum(times), sum(times)::BIGINT
FROM acted JOIN words USING (run, branch) GROUP BY ALL;

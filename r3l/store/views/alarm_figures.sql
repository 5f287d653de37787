-- What the alarms watch, one row per iteration, branch and alarm: its figure, and of how many it is one. Held-out success has the starting
-- policy as iteration -1. step share: the shortest step of the update, 1 where the drift kept its bound. new words: share of base actions
-- with a word that no observation of the run has, and no action of its first iteration. no credit: share of groups without an advantage.
-- sampler ratio: 99th percentile of the ratio of trainer to engine, or its inverse where that is larger. paid failures: share of failed base
-- attempts and retries that are paid as much as the median solved one. unlike pay: of base attempts that did and saw the same, the share
-- among which rewards differ. held-out gap: solved share of base attempts less that of the held-out episodes of their iteration.
CREATE VIEW lines.alarm_figures AS
WITH parts AS MATERIALIZED (FROM lines.alarm_parts),
words AS (
    SELECT run, branch, list_distinct(flatten(list(shown)) || coalesce(arg_min(said, iteration) FILTER (said IS NOT NULL), [])) AS words
    FROM parts WHERE alarm = 'new words' GROUP BY run, branch
)
SELECT run, branch, iteration, alarm, figure, count FROM parts WHERE alarm NOT IN ('new words', 'held-out gap')
UNION ALL SELECT run, branch, iteration, 'held-out success', $evaluation_success, count(*) FROM lines.held_out GROUP BY ALL
UNION ALL
SELECT run, branch, iteration, 'held-out gap', figure - share, least(parts.count, h.count) FROM parts
JOIN (SELECT run, branch, iteration, avg(success::INTEGER) AS share, count(*) AS count FROM lines.held_out GROUP BY ALL) h USING (run, branch, iteration)
WHERE alarm = 'held-out gap'
UNION ALL
SELECT run, branch, iteration, alarm, coalesce(sum(act.times) FILTER (NOT list_has_all(words, act.words)), 0) / sum(act.times), sum(act.times)::BIGINT
FROM (SELECT run, branch, iteration, alarm, unnest(acts) AS act FROM parts WHERE alarm = 'new words') JOIN words USING (run, branch)
GROUP BY ALL;

-- What the alarms watch, one row per iteration, branch and alarm: its figure, and of how many it is one. Held-out success has the starting
-- policy as iteration -1. step share: the shortest step of the update, 1 where the drift kept its bound. new words: share of base actions
-- with a word that no observation of the run has, and no action of its first iteration. no credit: share of groups without an advantage.
-- sampler ratio: 99th percentile of the ratio of trainer to engine, or its inverse where that is larger. paid failures: share of failed base
-- attempts and retries that are paid as much as the median solved one. unlike pay: of base attempts that did and saw the same, the share
-- among which rewards differ. held-out gap: solved share of base attempts less that of the held-out episodes of their iteration.
CREATE VIEW lines.alarm_figures AS
WITH parts AS MATERIALIZED (FROM lines.alarm_parts),
acts AS (SELECT run, branch, iteration, alarm, unnest(acts, max_depth := 2) FROM parts WHERE alarm = 'new words'),
known AS (
    SELECT run, branch, unnest(shown) AS word FROM parts WHERE alarm = 'new words'
    UNION ALL
    SELECT run, branch, unnest(arg_min(said, iteration)) FROM parts WHERE alarm = 'new words' AND said IS NOT NULL GROUP BY run, branch
),
-- An action's words are looked up once, however often a run took it: the words of a long run are too many to be compared with each action's.
novel AS (
    SELECT DISTINCT run, branch, words
    FROM (SELECT *, unnest(words) AS word FROM (SELECT DISTINCT run, branch, words FROM acts)) ANTI JOIN known USING (run, branch, word)
)
SELECT run, branch, iteration, alarm, figure, count FROM parts WHERE alarm NOT IN ('new words', 'held-out gap')
UNION ALL SELECT run, branch, iteration, 'held-out success', $evaluation_success, count(*) FROM lines.held_out GROUP BY ALL
UNION ALL
SELECT run, branch, iteration, 'held-out gap', figure - share, least(parts.count, h.count) FROM parts
JOIN (SELECT run, branch, iteration, avg(success::INTEGER) AS share, count(*) AS count FROM lines.held_out GROUP BY ALL) h USING (run, branch, iteration)
WHERE alarm = 'held-out gap'
UNION ALL
SELECT run, branch, iteration, alarm, coalesce(sum(times) FILTER (novel.words IS NOT NULL), 0) / sum(times), sum(times)::BIGINT
FROM acts LEFT JOIN novel USING (run, branch, words) GROUP BY ALL;

-- What an iteration itself says of each alarm but held-out success, a row per iteration, branch and alarm: its figure, and of how many it is
-- one (of the held-out gap the solved share of base attempts). Of new words, which the whole run decides, instead: the words that its
-- observations show first, those that the first actions say, and its base actions, by those of their words that none of these
-- observations shows. It is kept for each block of iterations, so that a long run is not read again for the alarms of its newest one:
-- "first" and "these" are within a block, however many are asked at once.
CREATE VIEW lines.alarm_parts AS
WITH bases AS MATERIALIZED ( -- what several parts need is read once: to open a small file takes longer than to read it
    SELECT run, branch, iteration, base_id, task, reward, success, status FROM lines.base
),
tries AS MATERIALIZED (SELECT run, branch, iteration, base_id, reward, success, status FROM lines.retries),
played AS MATERIALIZED ( -- without the texts of observations, which are most of the bytes
    SELECT run, branch, iteration, trajectory_id, turn, action, observation <> '' AS seeing, observation_hash FROM lines.turns
),
words AS MATERIALIZED ( -- one text once: a world says the same often
    SELECT DISTINCT run, branch, $block AS block, iteration, acting, unnest(regexp_extract_all(lower(text), '\p{L}{2,}')) AS word
    FROM (SELECT DISTINCT run, branch, iteration, false AS acting, observation AS text FROM lines.turns
          UNION SELECT run, branch, iteration, true, action FROM played SEMI JOIN bases USING (run, branch, iteration))
),
seen AS ( -- a word once, in the first iteration that shows it; of the actions, those of the first iteration decide
    SELECT run, branch, iteration, list(word) FILTER (NOT acting AND first) AS shown, list(word) FILTER (acting AND start) AS said
    FROM (SELECT *, iteration = min(iteration) OVER (PARTITION BY run, branch, block, acting, word) AS first,
                 iteration = min(iteration) OVER (PARTITION BY run, branch, block, acting) AS start FROM words) GROUP BY ALL
),
acts AS ( -- only where the observations are still stored
    SELECT run, branch, $block AS block, iteration, regexp_extract_all(lower(action), '\p{L}{2,}') AS words, count(*) AS times
    FROM played WHERE seeing AND action <> '' AND trajectory_id IN (SELECT base_id FROM bases) GROUP BY ALL
),
unshown AS (
    SELECT run, branch, block, words, list_sort(list(DISTINCT word)) AS left_over
    FROM (SELECT *, unnest(words) AS word FROM (SELECT DISTINCT run, branch, block, words FROM acts))
    ANTI JOIN (FROM words WHERE NOT acting) USING (run, branch, block, word) GROUP BY ALL
),
acted AS (
    SELECT run, branch, iteration, list({'words': words, 'times': times}) AS acts
    FROM (SELECT run, branch, iteration, coalesce(left_over, []) AS words, sum(times)::BIGINT AS times
          FROM acts LEFT JOIN unshown USING (run, branch, block, words) GROUP BY ALL) GROUP BY ALL
),
paid AS ( -- attempts that the policy or a limit ended; what an attempt did and saw is one number, whatever the order of the rows
    SELECT run, branch, iteration, reward, success, task, episode
    FROM (SELECT run, branch, iteration, reward, success, task, base_id AS trajectory_id, status FROM bases
          UNION ALL SELECT run, branch, iteration, reward, success, NULL, NULL, status FROM tries)
    LEFT JOIN (SELECT run, branch, iteration, trajectory_id, bit_xor(hash(turn, action, observation_hash)) AS episode FROM played GROUP BY ALL)
        USING (run, branch, iteration, trajectory_id)
    WHERE status IN ('completed', 'turn_limit')
)
SELECT *, NULL::VARCHAR[] AS shown, NULL::VARCHAR[] AS said, NULL::STRUCT(words VARCHAR[], times BIGINT)[] AS acts FROM (
SELECT run, branch, iteration, 'guided retries' AS alarm, $retry_improvement_failed AS figure, count(*) FILTER (NOT base_success) AS count
FROM (SELECT r.run, r.branch, r.iteration, r.reward - b.reward AS gain, b.success AS base_success -- as `pivots` has them
      FROM tries r JOIN bases b USING (run, branch, iteration, base_id)) GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'parse rate', $parse_rate, count(*) FROM lines.reflections GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'entropy', $entropy, count(*) FROM lines.updates GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'drift', min(step_share), count(*) FROM lines.updates GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'sampler ratio', list_aggregate(flatten(list(list_transform(ratios, lambda r: greatest(r, 1 / r)))), 'quantile_cont', 0.99), sum(len(ratios))::BIGINT
          FROM lines.sampler_ratios GROUP BY ALL
-- where no attempt is solved, a whole reward is what one would be paid
UNION ALL SELECT run, branch, iteration, 'paid failures', avg((reward >= worth)::INTEGER), count(*)
FROM (SELECT *, coalesce(median(reward) FILTER (success) OVER (PARTITION BY run, branch, iteration), 1) AS worth FROM paid)
WHERE NOT success GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'unlike pay', coalesce(sum(attempts) FILTER (low < high), 0) / sum(attempts), sum(attempts)::BIGINT
FROM (SELECT run, branch, iteration, count(*) AS attempts, min(reward) AS low, max(reward) AS high
      FROM paid WHERE episode IS NOT NULL GROUP BY run, branch, iteration, task, episode) WHERE attempts > 1 GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'held-out gap', avg(success::INTEGER), count(*) FROM bases GROUP BY ALL
UNION ALL SELECT run, branch, iteration, 'no credit', avg((positive_mass + negative_mass = 0)::INTEGER), count(*) FROM lines.groups GROUP BY ALL)
UNION ALL SELECT run, branch, iteration, 'new words', NULL, NULL, shown, said, acts FROM seen LEFT JOIN acted USING (run, branch, iteration);

-- One row per iteration and branch: the figures that say whether it taught anything. retry_improvement: share of retries with
-- R(retry) > R(base), over all and over those of unsolved bases; reward_gain: mean of R(retry) - R(base), reward_gain_relative: the paper's
-- (mean R(retry) - mean R(base)) / mean R(base); pivot_fraction: pivot over turns; outcome_accuracy: reflections whose outcome is right.
-- no_step: why the update took no step, in words, null where it took one; its figures are null then.
CREATE VIEW lines.iterations AS
WITH line AS (SELECT run, branch, iteration, $stages, min(committed_at) AS first_commit, max(committed_at) AS last_commit
              FROM stages WHERE iteration >= 0 GROUP BY run, branch, iteration),
b AS (SELECT run, branch, iteration, $base FROM lines.base GROUP BY run, branch, iteration),
x AS (SELECT run, branch, iteration, $attempts FROM (
          SELECT run, branch, iteration, status FROM lines.base UNION ALL SELECT run, branch, iteration, status FROM lines.continuations UNION ALL SELECT run, branch, iteration, status FROM lines.retries
          UNION ALL SELECT run, branch, iteration, status FROM lines.reflections) WHERE status IN ('environment_error', 'engine_error')
      GROUP BY run, branch, iteration),
f AS (SELECT run, branch, iteration, $reflections FROM lines.reflections GROUP BY run, branch, iteration),
p AS (SELECT run, branch, iteration, $pivots FROM lines.pivots GROUP BY run, branch, iteration),
c AS (SELECT run, branch, iteration, $continuations FROM lines.continuations GROUP BY run, branch, iteration),
d AS (SELECT run, branch, iteration, $distilled FROM lines.distilled GROUP BY run, branch, iteration),
g AS (SELECT run, branch, iteration, $groups FROM lines.groups GROUP BY run, branch, iteration),
a AS (SELECT run, branch, iteration, $dominance FROM lines.dominance),
o AS (SELECT run, branch, iteration, $confusion FROM lines.confusion GROUP BY run, branch, iteration),
t AS (SELECT run, branch, iteration, $training_rows FROM lines.training_rows GROUP BY run, branch, iteration),
u AS (SELECT run, branch, iteration, max(step) AS step, bool_or(tokens_computed > 0) AS stepped, $updates, arg_max(policy, step) AS policy
      FROM lines.updates GROUP BY run, branch, iteration),
r AS (SELECT run, branch, iteration, $sampler_ratios FROM lines.sampler_ratios GROUP BY run, branch, iteration),
e AS (SELECT run, branch, iteration, $evaluations FROM lines.held_out GROUP BY run, branch, iteration)
SELECT * REPLACE (coalesce(failed_attempts, 0) AS failed_attempts),
       CASE WHEN NOT stepped THEN format('no step taken: {} of {} groups have mixed rewards', coalesce(mixed_groups, 0), coalesce(groups, 0))
            || coalesce(format('; {:.0f} % of reflections parse', 100 * parse_rate), '') END AS no_step
FROM line
LEFT JOIN b USING (run, branch, iteration)
LEFT JOIN x USING (run, branch, iteration)
LEFT JOIN f USING (run, branch, iteration)
LEFT JOIN p USING (run, branch, iteration)
LEFT JOIN c USING (run, branch, iteration)
LEFT JOIN d USING (run, branch, iteration)
LEFT JOIN g USING (run, branch, iteration)
LEFT JOIN a USING (run, branch, iteration)
LEFT JOIN o USING (run, branch, iteration)
LEFT JOIN t USING (run, branch, iteration)
LEFT JOIN u USING (run, branch, iteration)
LEFT JOIN r USING (run, branch, iteration)
LEFT JOIN e USING (run, branch, iteration)
ORDER BY run, branch, iteration;

-- One row per iteration and branch: the figures that say whether it taught anything. retry_improvement: share of retries with
-- R(retry) > R(base), over all and over those of unsolved bases; reward_gain: mean of R(retry) - R(base), reward_gain_relative: the paper's
-- (mean R(retry) - mean R(base)) / mean R(base); pivot_fraction: pivot over turns; outcome_accuracy: reflections whose outcome is right.
-- no_step: why the update took no step, in words, null where it took one; its figures are null then.
CREATE VIEW lines.iterations AS
WITH line AS (
    SELECT run, branch, iteration, sum(seconds) AS stage_seconds, min(committed_at) AS first_commit, max(committed_at) AS last_commit
    FROM stages WHERE iteration >= 0 GROUP BY run, branch, iteration
),
b AS (SELECT run, branch, iteration, count(DISTINCT task) AS tasks, count(*) AS bases, avg(reward) AS base_reward,
             avg(success::INTEGER) AS base_success, avg(turns) AS base_turns
      FROM lines.base GROUP BY run, branch, iteration),
x AS (SELECT run, branch, iteration, count(*) AS failed_attempts FROM (
          SELECT run, branch, iteration, status FROM lines.base UNION ALL SELECT run, branch, iteration, status FROM lines.retries
          UNION ALL SELECT run, branch, iteration, status FROM lines.reflections) WHERE status IN ('environment_error', 'engine_error')
      GROUP BY run, branch, iteration),
f AS (SELECT run, branch, iteration, count(*) AS reflections, avg((status = 'parsed')::INTEGER) AS parse_rate
      FROM lines.reflections GROUP BY run, branch, iteration),
p AS (SELECT run, branch, iteration, count(*) AS retries, avg(retry_reward) AS retry_reward, avg(retry_success::INTEGER) AS retry_success,
             avg((gain > 0)::INTEGER) AS retry_improvement, avg((gain > 0)::INTEGER) FILTER (NOT base_success) AS retry_improvement_failed,
             avg(gain) AS reward_gain,
             (avg(retry_reward) - avg(base_reward)) / nullif(avg(base_reward), 0) AS reward_gain_relative, avg(pivot_turn) AS pivot_mean, avg(pivot_fraction) AS pivot_fraction,
             count(*) FILTER (retry_status = 'diverged') AS diverged
      FROM lines.pivots GROUP BY run, branch, iteration),
d AS (SELECT run, branch, iteration, count(*) AS distilled FROM lines.distilled GROUP BY run, branch, iteration),
g AS (SELECT run, branch, iteration, count(*) AS groups, count(*) FILTER (mixed) AS mixed_groups FROM lines.groups GROUP BY run, branch, iteration),
a AS (SELECT run, branch, iteration, positive_share, positive_mean, negative_mean, alpha_min, positive_mass, negative_mass, dominance,
             variance_ratio
      FROM lines.dominance),
o AS (SELECT run, branch, iteration, sum(reflections) FILTER (correct) / nullif(sum(reflections) FILTER (correct IS NOT NULL), 0)::DOUBLE
             AS outcome_accuracy
      FROM lines.confusion GROUP BY run, branch, iteration),
t AS (SELECT run, branch, iteration, count(*) AS training_rows, sum(trained_tokens)::BIGINT AS trained_tokens,
             sum(nullif(len(token_ids), 0))::BIGINT AS sequence_tokens
      FROM lines.training_rows GROUP BY run, branch, iteration),
u AS (SELECT run, branch, iteration, max(step) AS step, bool_or(tokens_computed > 0) AS stepped, avg(loss) FILTER (tokens_computed > 0) AS loss, avg(loss_rl) FILTER (tokens_computed > 0) AS loss_rl, avg(loss_sft) FILTER (tokens_computed > 0) AS loss_sft,
             avg(loss_kl) FILTER (tokens_computed > 0) AS loss_kl, avg(grad_norm) FILTER (tokens_computed > 0) AS grad_norm, avg(entropy) FILTER (tokens_computed > 0) AS entropy, avg(kl_behaviour) FILTER (tokens_computed > 0) AS kl_behaviour,
             avg(kl_start) FILTER (tokens_computed > 0) AS kl_start, avg(clip_fraction) FILTER (tokens_computed > 0) AS clip_fraction, avg(ratio_mean) FILTER (tokens_computed > 0) AS ratio_mean,
             sum(reference_tokens)::BIGINT AS reference_tokens,
             max(canary_error) AS canary_error, sum(seconds) AS update_seconds, arg_max(policy, step) AS policy
      FROM lines.updates GROUP BY run, branch, iteration),
e AS (SELECT run, branch, iteration, avg(reward) AS evaluation_reward, avg(success::INTEGER) AS evaluation_success, count(*) AS evaluated
      FROM (FROM lines.evaluations QUALIFY shard IS NOT DISTINCT FROM min(shard) OVER (PARTITION BY run, branch, iteration)) -- the first: others are on other terms
      GROUP BY run, branch, iteration)
SELECT * REPLACE (coalesce(failed_attempts, 0) AS failed_attempts),
       CASE WHEN NOT stepped THEN format('no step taken: {} of {} groups have mixed rewards', coalesce(mixed_groups, 0), coalesce(groups, 0))
            || coalesce(format('; {:.0f} % of reflections parse', 100 * parse_rate), '') END AS no_step
FROM line
LEFT JOIN b USING (run, branch, iteration)
LEFT JOIN x USING (run, branch, iteration)
LEFT JOIN f USING (run, branch, iteration)
LEFT JOIN p USING (run, branch, iteration)
LEFT JOIN d USING (run, branch, iteration)
LEFT JOIN g USING (run, branch, iteration)
LEFT JOIN a USING (run, branch, iteration)
LEFT JOIN o USING (run, branch, iteration)
LEFT JOIN t USING (run, branch, iteration)
LEFT JOIN u USING (run, branch, iteration)
LEFT JOIN e USING (run, branch, iteration)
ORDER BY run, branch, iteration;

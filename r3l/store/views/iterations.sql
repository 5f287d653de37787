-- One row per iteration and branch: the figures that say whether it taught anything. retry_improvement: share of retries with
-- R(retry) > R(base), over all and over those of unsolved bases; reward_gain: mean of R(retry) - R(base), reward_gain_relative: the paper's
-- (mean R(retry) - mean R(base)) / mean R(base); pivot_fraction: pivot over turns; outcome_accuracy: reflections whose outcome is right.
CREATE VIEW iterations AS
WITH line AS (
    SELECT run, branch, iteration, sum(seconds) AS stage_seconds, min(committed_at) AS first_commit, max(committed_at) AS last_commit
    FROM stages WHERE iteration >= 0 GROUP BY run, branch, iteration
),
b AS (SELECT run, branch, iteration, count(DISTINCT task) AS tasks, count(*) AS bases, avg(reward) AS base_reward,
             avg(success::INTEGER) AS base_success, avg(turns) AS base_turns
      FROM base GROUP BY run, branch, iteration),
f AS (SELECT run, branch, iteration, count(*) AS reflections, avg((status = 'parsed')::INTEGER) AS parse_rate
      FROM lines.reflections GROUP BY run, branch, iteration),
p AS (SELECT run, branch, iteration, count(*) AS retries, avg(retry_reward) AS retry_reward, avg(retry_success::INTEGER) AS retry_success,
             avg((gain > 0)::INTEGER) AS retry_improvement, avg((gain > 0)::INTEGER) FILTER (NOT base_success) AS retry_improvement_failed,
             avg(gain) AS reward_gain,
             (avg(retry_reward) - avg(base_reward)) / nullif(avg(base_reward), 0) AS reward_gain_relative, avg(pivot_turn) AS pivot_mean, avg(pivot_fraction) AS pivot_fraction,
             count(*) FILTER (retry_status = 'diverged') AS diverged
      FROM pivots GROUP BY run, branch, iteration),
d AS (SELECT run, branch, iteration, count(*) AS distilled FROM distilled GROUP BY run, branch, iteration),
g AS (SELECT run, branch, iteration, count(*) AS groups, count(*) FILTER (mixed) AS mixed_groups FROM groups GROUP BY run, branch, iteration),
a AS (SELECT run, branch, iteration, positive_share, positive_mean, negative_mean, alpha_min, positive_mass, negative_mass, dominance,
             variance_ratio
      FROM dominance),
o AS (SELECT run, branch, iteration, sum(reflections) FILTER (correct) / nullif(sum(reflections) FILTER (correct IS NOT NULL), 0)::DOUBLE
             AS outcome_accuracy
      FROM confusion GROUP BY run, branch, iteration),
t AS (SELECT run, branch, iteration, count(*) AS training_rows, sum(trained_tokens)::BIGINT AS trained_tokens,
             sum(nullif(len(token_ids), 0))::BIGINT AS sequence_tokens
      FROM lines.training_rows GROUP BY run, branch, iteration),
u AS (SELECT run, branch, iteration, max(step) AS step, avg(loss) AS loss, avg(loss_rl) AS loss_rl, avg(loss_sft) AS loss_sft,
             avg(loss_kl) AS loss_kl, avg(grad_norm) AS grad_norm, avg(entropy) AS entropy, avg(kl_behaviour) AS kl_behaviour,
             avg(kl_start) AS kl_start, avg(clip_fraction) AS clip_fraction, avg(ratio_mean) AS ratio_mean,
             sum(reference_tokens)::BIGINT AS reference_tokens,
             max(canary_error) AS canary_error, sum(seconds) AS update_seconds, arg_max(policy, step) AS policy
      FROM lines.updates GROUP BY run, branch, iteration),
e AS (SELECT run, branch, iteration, avg(reward) AS evaluation_reward, avg(success::INTEGER) AS evaluation_success, count(*) AS evaluated
      FROM lines.evaluations GROUP BY run, branch, iteration)
SELECT *
FROM line
LEFT JOIN b USING (run, branch, iteration)
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

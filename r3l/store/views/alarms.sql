-- Where a run goes wrong, one row per iteration, branch and alarm that rings: figure, the bound that it passed, and in one sentence what is
-- wrong and what to change. Each is compared with its own past alone. standing: the run has no later figure of this alarm. r3l status, the
-- terminal, the audit's page of a run and Prefect's artifact show those that stand. They follow from stored rows: no stage writes them into
-- events. An alarm is a reason to look, no verdict: of the stored runs that rise most have one, too (data/LOG.md).
CREATE VIEW lines.alarms AS
WITH course AS (
    -- a list for each iteration of a long run is long: of one alarm alone
    SELECT *, first_value(figure) OVER line AS first, nth_value(figure, 2) OVER line AS second, max(figure) OVER line AS best,
           arg_max(figure * (1 - figure) / count, (figure, -iteration)) OVER line AS error_of_best, count(*) FILTER (figure < 1) OVER line AS cut,
           list(figure) FILTER (alarm = 'guided retries') OVER line AS past, iteration = max(iteration) OVER (PARTITION BY run, branch, alarm) AS standing
    FROM lines.alarm_figures WHERE figure IS NOT NULL
    WINDOW line AS (PARTITION BY run, branch, alarm ORDER BY iteration ROWS UNBOUNDED PRECEDING)
),
bounded AS (
    SELECT *, alarm IN ('new words', 'no credit', 'paid failures', 'unlike pay', 'held-out gap', 'sampler ratio') OR alarm = 'entropy' AND figure > first AS above,
           CASE alarm -- null: too early to say
                WHEN 'guided retries' THEN CASE WHEN len(past) > 2 THEN 0.6 * list_avg(past[: ceil(len(past) / 3)::INTEGER]) END
                WHEN 'parse rate' THEN 0.8 * first
                WHEN 'entropy' THEN CASE WHEN above THEN 2 * first ELSE first / 2 END
                WHEN 'drift' THEN CASE WHEN cut > 1 THEN 1 END
                WHEN 'held-out success' THEN best - 2 * sqrt(figure * (1 - figure) / count + error_of_best)
                -- where attempts are free text, each iteration has new words, the second as well
                WHEN 'new words' THEN greatest(0.05, 2 * second)
                WHEN 'no credit' THEN 0.9
                WHEN 'sampler ratio' THEN 2
                WHEN 'paid failures' THEN 0.1
                WHEN 'unlike pay' THEN 0.05
                WHEN 'held-out gap' THEN 0.2 + 2 * sqrt(0.5 / count) -- two standard errors of a difference of shares, at most
           END AS bound
    FROM course
)
SELECT run, branch, iteration, alarm, figure, bound, standing,
       CASE alarm
            WHEN 'guided retries' THEN format('guided retries win {:.0f} %, less than 0.6 of what they won in the first third ({:.0f} %)', 100 * figure, 100 * bound / 0.6)
                || ': lower training.learning_rate, or set training.max_drift; where they stop winning, new successes dry up'
            WHEN 'parse rate' THEN format('{:.0f} % of reflections parse, {:.0f} % at the start', 100 * figure, 100 * first)
                || ': lower training.learning_rate, or set training.max_drift'
            WHEN 'entropy' THEN format('entropy {:.3g} nats, {:.3g} at the start', figure, first)
                || ': lower training.learning_rate, or raise method.kl_coefficient'
            WHEN 'drift' THEN format('the step drifts above training.max_drift and was cut to {:.0f} %, not for the first time', 100 * figure)
                || ': lower training.learning_rate'
            WHEN 'held-out success' THEN format('held-out success {:.0f} %, more than two standard errors below its best ({:.0f} %)', 100 * figure, 100 * best)
                || ': go on from the policy of its best, with a lower training.learning_rate'
            WHEN 'new words' THEN format('{:.0f} % of base actions have a word that no observation of the run has', 100 * figure)
                || ': read some in r3l audit; lower training.learning_rate, or raise method.kl_coefficient'
            WHEN 'paid failures' THEN format('{:.0f} % of failed attempts are paid like a solved one', 100 * figure)
                || ': read some in r3l audit; the reward pays for another thing than the goal'
            WHEN 'unlike pay' THEN format('{:.0f} % of attempts that did and saw the same are paid differently', 100 * figure)
                || ': the reward depends on something outside the episode, such as an earlier one or a clock'
            WHEN 'held-out gap' THEN format('the policy solves {:.0f} points more of its own tasks than of the held-out ones', 100 * figure)
                || ': look for answers in what the tasks show, or draw from more tasks'
            WHEN 'no credit' THEN format('{:.0f} % of groups have no credit', 100 * figure)
                || ': raise rollout.group_size, or choose tasks that are neither always won nor always lost'
            WHEN 'sampler ratio' THEN format('one token in a hundred is {:.3g} times as likely in the trainer as in the engine that sampled it, or the other way round', figure)
                || ': see that both have the same weights and dtype; method.sampler_ratio=mask leaves such tokens out' END AS advice
FROM bounded
WHERE CASE WHEN above THEN figure > bound ELSE figure < bound END
ORDER BY run, branch, iteration, alarm;

-- Which policy came from which, and what were the figures of the step?
SELECT run, branch, iteration, step, parent_policy, policy, round(loss, 4) AS loss, round(kl_start, 6) AS kl_start, round(kl_behaviour, 6) AS kl_behaviour, round(canary_error, 8) AS canary_error
FROM updates
ORDER BY run, branch, step;

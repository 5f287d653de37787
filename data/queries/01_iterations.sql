-- How did the run develop: what did each iteration sample, retry and train on, and what was its loss?
SELECT run, branch, iteration, round(base_success, 3) AS base_success, round(parse_rate, 3) AS parse_rate,
       round(retry_improvement, 3) AS retry_improvement, round(pivot_mean, 2) AS pivot_mean, mixed_groups, groups, trained_tokens,
       round(loss, 4) AS loss, round(grad_norm, 3) AS grad_norm
FROM iterations
ORDER BY run, branch, iteration;

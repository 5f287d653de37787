-- At which turns was the policy least certain (mean log-probability per token)?
SELECT run, turn, count(*) AS replies, round(sum(list_sum(response_logprobs)) / sum(len(response_logprobs)), 4) AS mean_logprob
FROM turns
GROUP BY run, turn
ORDER BY run, mean_logprob, turn;

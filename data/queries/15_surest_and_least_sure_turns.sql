-- At which turns was the policy least certain (mean log-probability per token)?
SELECT run, turn, count(*) AS replies, round(sum(logprob) / sum(tokens) FILTER (logprob IS NOT NULL), 4) AS mean_logprob
FROM replies
GROUP BY run, turn
ORDER BY run, mean_logprob, turn;

-- At which turns was the policy least sure of what it said (mean log-probability of a token)?
SELECT turn, count(*) AS replies, round(sum(list_sum(response_logprobs)) / sum(len(response_logprobs)), 4) AS mean_logprob
FROM turns
WHERE branch = ''
GROUP BY turn
ORDER BY mean_logprob, turn;

-- What share of the tokens of a training row carries weight, by its role?
SELECT role, term, count(*) AS rows, sum(len(token_ids)) AS tokens, sum(trained_tokens) AS with_weight,
       round(sum(trained_tokens) / sum(len(token_ids)), 3) AS share
FROM lines.training_rows
WHERE branch = ''
GROUP BY role, term
ORDER BY role, term;

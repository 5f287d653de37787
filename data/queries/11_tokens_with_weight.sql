-- What share of the tokens of a training row carries weight, by its role?
SELECT run, role, term, count(*) AS rows, sum(len(token_ids)) AS tokens, sum(trained_tokens) AS with_weight,
       round(sum(trained_tokens) / sum(len(token_ids)), 3) AS share
FROM training_rows
GROUP BY run, role, term
ORDER BY run, role, term;

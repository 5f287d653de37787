-- What share of the tokens of a training row carries weight, by its role?
SELECT run, role, term, count(*) AS rows, sum(len(weights)) AS tokens, sum(trained_tokens) AS with_weight,
       round(sum(trained_tokens) / sum(len(weights)), 3) AS share
FROM training_rows  -- as many weights as ids, in far fewer bytes
GROUP BY run, role, term
ORDER BY run, role, term;

-- Is every attempt accounted for: trained on, led to a trained one, or dropped with a reason?
SELECT run, stage, sum(attempts) AS attempts, sum(trained) AS trained, sum(led_on) AS led_on, sum(dropped) AS dropped, sum(unaccounted) AS unaccounted
FROM account
GROUP BY run, stage
ORDER BY run, stage;

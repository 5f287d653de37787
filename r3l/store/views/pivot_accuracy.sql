-- How well reflections locate the fault, per iteration (paper, table pivot_accuracy), as shares of the rows of `diagnoses`. won_if_right and
-- won_if_wrong: retries that won, of those whose pivot agreed with the oracle's and of the others.
CREATE VIEW lines.pivot_accuracy AS
SELECT run, branch, iteration, count(*) AS reflections, avg(agrees::INTEGER) AS agreement,
       avg((diagnosis = 'accurate')::INTEGER) AS accurate, avg((diagnosis = 'partial')::INTEGER) AS partial,
       avg((diagnosis = 'misdiagnosed')::INTEGER) AS misdiagnosed,
       count(retry_success) FILTER (agrees) AS retries_if_right, avg(retry_success::INTEGER) FILTER (agrees) AS won_if_right,
       count(retry_success) FILTER (NOT agrees) AS retries_if_wrong, avg(retry_success::INTEGER) FILTER (NOT agrees) AS won_if_wrong
FROM lines.diagnoses GROUP BY run, branch, iteration ORDER BY run, branch, iteration;

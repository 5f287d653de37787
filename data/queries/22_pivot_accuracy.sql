-- Do reflections find the faulty turn, and does it matter: pivots against the oracle's, and success of retries from right and wrong pivots?
SELECT run, branch, iteration, reflections, round(agreement, 3) AS agreement, round(accurate, 3) AS accurate, round(partial, 3) AS partial,
       round(misdiagnosed, 3) AS misdiagnosed, retries_if_right, round(won_if_right, 3) AS won_if_right,
       retries_if_wrong, round(won_if_wrong, 3) AS won_if_wrong
FROM pivot_accuracy
ORDER BY run, branch, iteration;

-- How good is each policy on the held-out tasks, with the spread over repeats?
SELECT run, branch, iteration, benchmark, protocol, count(*) AS episodes, round(avg(repeat_reward), 4) AS reward, round(stddev_samp(repeat_reward), 4) AS spread
FROM (SELECT run, branch, iteration, benchmark, protocol, repeat, avg(reward) AS repeat_reward FROM evaluations GROUP BY ALL)
GROUP BY ALL
ORDER BY run, branch, benchmark, iteration;

-- How good is each policy on the held-out tasks, with the spread over repeats?
SELECT run, branch, iteration, benchmark, protocol, data, evaluation, tasks, of_tasks, temperature, seed, sum(episodes)::BIGINT AS episodes,
       count(*) AS repeats, round(avg(repeat_reward), 4) AS reward, round(stddev_samp(repeat_reward), 4) AS spread
FROM (SELECT run, branch, iteration, benchmark, protocol, data, evaluation, tasks, of_tasks, round(temperature, 3) AS temperature, seed, repeat,
             count(*) AS episodes, avg(reward) AS repeat_reward FROM evaluations GROUP BY ALL)
GROUP BY ALL
ORDER BY run, branch, benchmark, evaluation, iteration;

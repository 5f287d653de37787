-- Counterfactual: what would alpha = 1, the released preset or plain GRPO have given the same rollouts?
WITH shown AS (
    SELECT * FROM credit ORDER BY run, iteration, task, trajectory_id LIMIT 100)
SELECT run, c.trajectory_id, c.reward, round(c.advantage, 4) AS as_trained, round(a.advantage, 4) AS alpha_1, round(r.advantage, 4) AS released,
       round(p.advantage, 4) AS grpo
FROM shown c
JOIN credit_paper(1.0) a USING (run, branch, iteration, trajectory_id)
JOIN credit_released() r USING (run, branch, iteration, trajectory_id)
JOIN credit_grpo() p USING (run, branch, iteration, trajectory_id)
ORDER BY run, c.iteration, c.task, c.trajectory_id;

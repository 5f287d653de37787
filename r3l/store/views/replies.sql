-- One row per reply of a turn: its length in tokens, and the sum of their log-probabilities at temperature 1 (null where they were pruned or
-- never told).
CREATE VIEW lines.replies AS
SELECT run, branch, iteration, trajectory_id, turn, len(response_ids) AS tokens, list_sum(response_logprobs) AS logprob
FROM lines.turns;

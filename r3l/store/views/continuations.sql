-- Continuations: from a turn of a base (pivot_turn), rolled back to and played on by the policy itself. Their mean reward is that turn's value.
CREATE VIEW lines.continuations AS
SELECT * EXCLUDE (reflection_id, retry_id, pivot_asked), trajectory_id AS continuation_id
FROM lines.continuation_trajectories
WHERE kind = 'continuation';

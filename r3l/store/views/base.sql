-- Base trajectories: the attempts that the behaviour policy made by itself.
CREATE VIEW lines.base AS
SELECT * EXCLUDE (base_id, parent_id, reflection_id, retry_id, pivot_asked, pivot_turn, shared_turns), trajectory_id AS base_id
FROM lines.base_trajectories
WHERE kind = 'base';

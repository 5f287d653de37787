-- Distilled trajectories: a base's prefix and a retry's suffix, the guidance gone from the context.
CREATE VIEW lines.distilled AS
SELECT *, trajectory_id AS distilled_id
FROM lines.distilled_trajectories
WHERE kind = 'distilled';

-- Retries: rolled back to the pivot and played on under the guidance of a reflection.
CREATE VIEW lines.retries AS
SELECT * EXCLUDE (retry_id), trajectory_id AS retry_id
FROM lines.retry_trajectories
WHERE kind = 'retry';

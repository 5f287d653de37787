-- What reflections said against what was: one row for each outcome that a reflection named (or the status of one that named none) and
-- each verdict of the environment on the attempt that it is about. Right: an outcome other than failure on a solved attempt, failure on
-- an unsolved one; null where no outcome was named.
CREATE VIEW lines.confusion AS
SELECT f.run, f.branch, f.iteration, coalesce(f.outcome, f.status) AS said, t.success AS solved, count(*) AS reflections,
       avg(t.reward) AS reward, any_value(CASE WHEN f.outcome IS NOT NULL THEN (f.outcome <> 'failure') = t.success END) AS correct
FROM lines.reflections f JOIN lines.trajectories t USING (run, branch, iteration, trajectory_id)
GROUP BY f.run, f.branch, f.iteration, said, solved;

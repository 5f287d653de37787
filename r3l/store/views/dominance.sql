-- Per iteration, whether successes outweigh failures (paper, Theorem 4.3). Before amplification: positive_share p, mean A+ and mean A-
-- over the members whose advantage is not 0, alpha_min = (1-p)|mean A-| / (p mean A+). After it: positive_mass = sum of A+,
-- negative_mass = sum of |A-|, dominance = their ratio. variance_ratio (Theorem 4.5): (T - T_pivot) / T over the rows of the group's members.
CREATE VIEW lines.dominance AS
WITH mass AS (
    SELECT run, branch, iteration,
           count(*) FILTER (scaled > 0) / nullif(count(*) FILTER (scaled <> 0), 0)::DOUBLE AS positive_share,
           avg(scaled) FILTER (scaled > 0) AS positive_mean, avg(scaled) FILTER (scaled < 0) AS negative_mean,
           sum(greatest(-scaled, 0)) / nullif(sum(greatest(scaled, 0)), 0) AS alpha_min,
           sum(greatest(advantage, 0)) AS positive_mass, sum(greatest(-advantage, 0)) AS negative_mass
    FROM lines.credit GROUP BY run, branch, iteration
),
masked AS (
    SELECT w.run, w.branch, w.iteration, sum(w.trained_tokens) / nullif(sum(t.response_tokens), 0)::DOUBLE AS variance_ratio
    FROM lines.training_rows w JOIN lines.trajectories t ON (t.run, t.branch, t.trajectory_id) = (w.run, w.branch, w.source_id)
    WHERE w.role IN ('explore', 'refinement')
    GROUP BY w.run, w.branch, w.iteration
)
SELECT *, positive_mass / nullif(negative_mass, 0) AS dominance
FROM mass LEFT JOIN masked USING (run, branch, iteration);

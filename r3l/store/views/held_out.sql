-- Evaluation episodes that may be compared over a line's iterations: those on the terms (benchmark, format, protocol, tasks, repeats,
-- temperature, and all else in the digest `evaluation`) that most of its policies were evaluated on; of equals, the newest. `evaluations` has all.
CREATE VIEW lines.held_out AS
WITH played AS (
    SELECT *, hash(benchmark, format, protocol, split, tasks, repeats, seed, temperature, data, evaluation) AS terms FROM lines.evaluations),
chosen AS (
    SELECT run, branch, terms FROM played GROUP BY run, branch, terms
    QUALIFY row_number() OVER (PARTITION BY run, branch
                               ORDER BY count(DISTINCT iteration) DESC, max(iteration) DESC, min(shard), terms) = 1)
SELECT played.* EXCLUDE (terms) FROM played JOIN chosen USING (run, branch, terms)
QUALIFY shard IS NOT DISTINCT FROM min(shard) OVER (PARTITION BY run, branch, iteration);

-- Where the update stored its scores, one row per training row: the ratio of trainer to engine of each trained token whose log-probability
-- the engine told (a retry's was sampled behind guidance), and how many of these ratios method.sampler_ratio cut or masked, null without it.
CREATE VIEW lines.sampler_ratios AS
SELECT run, branch, iteration, row_id, source_id, cut_tokens,
       list_transform(list_filter(list_zip(trainer, engine), lambda z: isfinite(z[2])), lambda z: exp(z[1]::DOUBLE - z[2])) AS ratios
FROM (SELECT s.run, s.branch, s.iteration, s.row_id, w.source_id, s.cut_tokens, s.logprobs AS trainer,
             list_transform(list_filter(list_zip(w.weights, w.logprobs), lambda z: z[1] <> 0), lambda z: z[2]) AS engine
      FROM lines.training_scores s JOIN lines.training_rows w USING (run, branch, iteration, row_id))
WHERE len(trainer) = len(engine); -- emptied columns have no ratio

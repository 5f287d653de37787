-- One row per trajectory, everything about it nested inside: its turns, the reflections on it, its credit and its training row.
SELECT t.*,
       (SELECT list(struct_pack(turn := n.turn, observation := n.observation, response := n.response, "action" := n.action, valid := n.valid,
                                finish_reason := n.finish_reason, context_ids := n.context_ids, response_ids := n.response_ids,
                                response_logprobs := n.response_logprobs) ORDER BY n.turn)
        FROM stored.turns n WHERE (n.run, n.branch, n.trajectory_id) = (t.run, t.branch, t.trajectory_id)) AS turn_list,
       (SELECT list(struct_pack(reflection_id := f.reflection_id, status := f.status, outcome := f.outcome, pivot_turn := f.pivot_turn,
                                decision := f.decision, "text" := f.text, report := f.report) ORDER BY f.reflection_id)
        FROM stored.reflections f WHERE (f.run, f.branch, f.trajectory_id) = (t.run, t.branch, t.trajectory_id)) AS reflection_list,
       (SELECT any_value(struct_pack(advantage := c.advantage, turn_advantages := c.turn_advantages, scaled := c.scaled, rule := c.rule, group_mean := c.group_mean,
                                     group_std := c.group_std, mask_turn := c.mask_turn))
        FROM stored.credit c WHERE (c.run, c.branch, c.iteration, c.trajectory_id) = (t.run, t.branch, t.iteration, t.trajectory_id)) AS credit,
       (SELECT list(struct_pack(row_id := w.row_id, "role" := w.role, term := w.term, objective := w.objective, advantage := w.advantage,
                                advantages := w.advantages, weights := w.weights, trained_tokens := w.trained_tokens) ORDER BY w.row_id)
        FROM stored.training_rows w WHERE (w.run, w.branch, w.iteration, w.source_id) = (t.run, t.branch, t.iteration, t.trajectory_id)) AS training_row_list
FROM stored.trajectories t
ORDER BY t.run, t.branch, t.iteration, t.trajectory_id

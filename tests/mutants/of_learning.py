"""Faults of what is sampled and learned: exploration and its worlds, methods, losses and the update; and of what tells
that a stored file is the one that was written."""

from tests.mutants.patches import Mutant

INDEX, STAMPS, DAMAGE = "r3l/store/index/blocks.py", "r3l/store/files/stamps.py", "r3l/store/damage.py"
SESSIONS, RETRY, EPISODE = (
    "r3l/environments/workers/sessions.py",
    "r3l/exploration/retry.py",
    "r3l/exploration/episode.py",
)
REPORT, REFLECT = "r3l/exploration/report.py", "r3l/exploration/reflect.py"
META, ROWS, STAGES, R3L = (f"r3l/methods/{name}.py" for name in ("meta_tasks", "rows", "stages", "r3l"))
BASE, LOSSES, READ = "r3l/methods/base.py", "r3l/losses/objectives.py", "r3l/training/rows.py"
STEPS, CHECKPOINT, UPDATE = "r3l/training/stepping/steps.py", "r3l/training/checkpoint.py", "r3l/training/update.py"
T_OVERLAP = "tests/flows/test_overlap.py"
RUN_STAGE, ITERATION, SQL = "r3l/pipeline/stages/run_stage.py", "r3l/pipeline/iteration.py", "flows/cli/tables/sql.py"
(
    T_INDEX, T_STAMPS, T_SESSIONS, T_EXPLORATION, T_CUT_OFF, T_METHODS, T_ROWS, T_META, T_LOSSES, T_JOB, T_STEPS,
    T_RESUME,
) = (
    f"tests/unit/test_{name}.py"
    for name in (
        "store_index", "store_stamps", "pool_sessions", "exploration", "cut_off_episodes", "methods", "methods_rows",
        "meta_objective", "loss_functions", "training_job", "training_steps", "training_resume",
    )
)  # fmt: skip
T_CHECK, T_DRIFT, T_SHARDS = (
    f"tests/unit/test_{name}.py" for name in ("store_check", "training_drift", "training_shards")
)

# fmt: off
OF_LEARNING = [
    # What tells that a file is the one that was written.
    Mutant("the index remembers unsettled files", INDEX, "if damage or newest >= began - UNSETTLED_NS:",
           "if damage:", f"{T_INDEX} -k unsettled"),
    Mutant("the index remembers damage", INDEX, "if damage or newest", "if newest", T_INDEX),
    Mutant("a stamp without the inode", STAMPS, "stat.st_mtime_ns, stat.st_ino]", "stat.st_mtime_ns, 0]", f"{T_INDEX} -k inode"),
    Mutant("a stamp without the time", STAMPS, "[stat.st_size, stat.st_mtime_ns, ", "[stat.st_size, 0, ", T_INDEX),
    Mutant("digests of files that change meanwhile", STAMPS, "if newest(paths) < began - UNSETTLED_NS and stamps_name(paths) == name:",
           "if True:", T_STAMPS),
    Mutant("a check without lineage", DAMAGE, "for change in manifests.outdated_parents(store.files, manifest, digests)",
           "for change in ()", f"{T_CHECK} -k made_again"),
    Mutant("a check without the files that nobody names", DAMAGE, "if is_part(path) and path not in manifest_parts and is_left_behind(store, path):", "if False:",
           "tests/unit/test_store_damage.py -k nobody_names"),
    Mutant("a check without saved settings", DAMAGE, "manifests.unsealed(store.files.read(path) or b\"\", path)", "pass",
           "tests/unit/test_store_damage.py tests/unit/test_saved_config.py tests/unit/test_judge.py"),
    Mutant("an update's identity without the optimiser", RUN_STAGE, '"optimiser": of.optimiser or ""', '"optimiser": ""',
           "tests/unit/test_stage_identity.py -k optimiser"),
    Mutant("an update from any state of the optimiser", UPDATE, "refuse_other_state(Path(job.optimiser), job.optimiser_digest)",
           "pass", f"{T_RESUME} -k neither_loaded"),
    Mutant("sampling before the optimiser is looked at", ITERATION, "policies.check_optimiser(bench.store, bench.policies)", "pass",
           "tests/flows/test_methods.py -k optimiser_state"),
    # Worlds and rollback.
    Mutant("a rollback that goes on after the end", SESSIONS, "if text != observations[turn + 1] or done:",
           "if text != observations[turn + 1]:", T_SESSIONS),
    Mutant("a rollback to other observations", SESSIONS, "if text != observations[turn + 1] or done:", "if done:", T_SESSIONS),
    Mutant("states of another seed shared", SESSIONS, r'\x1f{task.seed}"', '"', T_SESSIONS),
    Mutant("an opening that is not compared", SESSIONS, "if opening.text != observations[0]:", "if False:", T_SESSIONS),
    Mutant("a state used for another answer", SESSIONS,
           "if node is not None and (node.observation, node.done) == (step.observation.text, step.done):",
           "if node is not None:", T_SESSIONS),
    Mutant("a tree kept for another opening", SESSIONS, "if tree is None or tree.root.observation != root.observation:",
           "if tree is None:", T_SESSIONS),
    Mutant("a malformed turn taken as an action", SESSIONS, '            if action == "":', '            if action == "nothing":',
           T_SESSIONS),
    # Exploration.
    Mutant("true read as a pivot", REPORT, "isinstance(value, int) and not isinstance(value, bool)", "isinstance(value, int)",
           f"{T_EXPLORATION} -k whole_number"),
    Mutant("the floor of a fraction as a pivot", REPORT, "isinstance(value, float) and value.is_integer()", "isinstance(value, float)",
           f"{T_EXPLORATION} -k whole_number"),
    Mutant("a report of the thought", REPORT, "answer = after_thought(reply)", "answer = reply", "tests/unit/test_thoughts.py"),
    Mutant("inefficient successes not retried", REFLECT, 'reading.outcome == "success":', 'str(reading.outcome).startswith("success"):',
           f"{T_EXPLORATION} -k could_be_shorter"),
    Mutant("a success retried", REFLECT, 'if plan.retry_when == "not_success" and reading', 'if plan.retry_when == "never" and reading',
           f"{T_EXPLORATION} -k success"),
    Mutant("a retry at the very bound", REFLECT, "reward >= plan.retry_reward_below:", "reward > plan.retry_reward_below:",
           f"{T_EXPLORATION} -k very_bound"),
    Mutant("a report that tells the answer retried", REFLECT, "if leak else decision", "if False else decision",
           "tests/unit/test_math_exploration.py"),
    Mutant("a clamp beyond the last turn", REFLECT, "min(max(pivot_number, 0), turns - 1)", "min(max(pivot_number, 0), turns)", T_EXPLORATION),
    Mutant("one turn too few rolled back", RETRY, "[one.action for one in turns[:to]]",
           "[one.action for one in turns[: max(to - 1, 0)]]", T_EXPLORATION),
    Mutant("a retry that shares more than its parent did", RETRY, "min(pivot, parent_shared)", "max(pivot, parent_shared)", T_EXPLORATION),
    Mutant("a diverged rollback played on", RETRY, "if rollback.diverged_at is not None:", "if False:", T_EXPLORATION),
    Mutant("guidance at the pivot left out", RETRY, 'if plan.guidance == "none":', 'if plan.guidance != "all":', T_EXPLORATION),
    Mutant("one seed for all turns", EPISODE, "derive(start.seed, start.trajectory_id, k)", "derive(start.seed, start.trajectory_id)",
           T_EXPLORATION),
    Mutant("a broken attempt keeps its reward", EPISODE, "        self.reward = 0.0\n", "        pass\n", T_CUT_OFF),
    Mutant("a malformed reply takes the standing", EPISODE, "        if turn.valid:\n            # a", "        if True:\n            # a",
           T_CUT_OFF),
    Mutant("a cut off reply acted on", EPISODE, "valid = reply.valid and explorer.chat.closed(completion.token_ids)", "valid = reply.valid",
           T_EXPLORATION),
    # Methods.
    Mutant("lessons compared with the base alone", META, "pair = (seen[reflection.trajectory_id], seen[reflection.base_id])",
           "pair = (seen[reflection.base_id],)", f"{T_METHODS} -k must_beat_both"),
    Mutant("lessons compared with what was reflected on alone", META,
           "pair = (seen[reflection.trajectory_id], seen[reflection.base_id])", "pair = (seen[reflection.trajectory_id],)",
           f"{T_METHODS} -k must_beat_both"),
    Mutant("guidance of others learned", META, 'if reflection.source != "policy" and settings.sft_guidance == "own":', "if False:",
           f"{T_META} tests/unit/test_guidance.py"),
    Mutant("a retry that is as good is a lesson", META, "if retry.reward > before.reward\n", "if retry.reward >= before.reward\n",
           f"{T_ROWS} {T_METHODS}"),
    Mutant("a broken retry is a lesson", META, "    if not Status(retry.status).trainable:\n        return f\"the retry ended with {retry.status}: {retry.reason}\"\n    before",
           "    before", f"{T_META} {T_METHODS} {T_ROWS}"),
    Mutant("no report learned", META, 'return "" if reflection.status == Status.PARSED else', "return \"\" if True else", T_METHODS),
    Mutant("reports weighed alone", META, "rewards = compare_rewards(rewards)", "pass", T_META),
    Mutant("turns kept behind guidance in the system prompt", META, 'return 0 if settings.guidance_position == "system" else',
           'return 0 if settings.guidance_position == "nowhere" else', T_ROWS),
    Mutant("kept turns learned again", ROWS, "mask_turn=len(kept))", "mask_turn=0)", T_ROWS),
    Mutant("guided log-probabilities kept", ROWS, "replace(turn, response_logprobs=[math.nan] * len(turn.response_ids))", "turn",
           f"{T_ROWS} {T_METHODS} tests/unit/test_off_policy.py"),
    Mutant("only unmasked tokens counted", ROWS, 'length = sampled if settings.loss_normalisation == "trajectory" else trained',
           "length = trained", T_ROWS),
    Mutant("a KL on meta-tasks", ROWS, 'settings.kl_coefficient if objective.term == "rl" else 0.0', "settings.kl_coefficient",
           f"{T_ROWS} -k no_kl"),
    Mutant("a group's size forgotten", ROWS, "return 1.0 / (max(length, 1) * group_size)", "return 1.0 / max(length, 1)", T_ROWS),
    Mutant("broken attempts are members", STAGES, "usable = [member for member in group if Status(member.status).trainable]",
           "usable = list(group)", T_ROWS),
    Mutant("tokens of no advantage left out of the mean", STAGES, ' and row.reduction != "tokens"', "", f"{T_METHODS} {T_ROWS}"),
    Mutant("fully masked rows kept", STAGES, "if row.trained_tokens == 0:", "if row.trained_tokens < 0:", T_ROWS),
    Mutant("the budget spent twice", R3L, "retried_bases=half // retries", "retried_bases=half",
           f"{T_METHODS} tests/unit/test_methods_rehearsed.py tests/unit/test_presets.py"),
    Mutant("meta-tasks without their weight", R3L, 'Objective("cross_entropy", coefficient=settings.sft_weight, term="sft")',
           'Objective("cross_entropy", term="sft")', T_ROWS),
    Mutant("a chain masked up to its last pivot", BASE, "return member.pivot_turn if member.shared_turns is None else member.shared_turns",
           "return member.pivot_turn", T_ROWS),
    Mutant("a lone member credited", BASE, "if rewards_G.size == 1:", "if rewards_G.size == 0:", "tests/unit/test_credit.py"),
    Mutant("penalties forgotten", BASE, "dtype=np.float64) - penalties", "dtype=np.float64)", T_METHODS),
    # The update.
    Mutant("a gradient upwards", LOSSES, "return RowLoss(-(weights_T * advantage * logp_T).sum())",
           "return RowLoss((weights_T * advantage * logp_T).sum())", T_LOSSES),
    Mutant("the ratio upside down", LOSSES, "ratio_T = (logp_T - old_T).exp()\n", "ratio_T = (old_T - logp_T).exp()\n", T_LOSSES),
    Mutant("a gradient through what is clipped", LOSSES, "ratio_T = (logp_T - old_T).detach().exp()", "ratio_T = (logp_T - old_T).exp()",
           T_LOSSES),
    Mutant("a sequence's ratio as a sum", LOSSES, "[trained_T].mean().exp()", "[trained_T].sum().exp()", T_LOSSES),
    Mutant("the last trained token cut", READ, "token_ids[: positions[-1] + 1]", "token_ids[: positions[-1]]", f"{T_SHARDS} {T_JOB}"),
    Mutant("old log-probabilities of oneself", READ, "has_ratio and self.behaviour_policy != policy",
           "has_ratio and self.behaviour_policy == policy", f"{T_JOB} -k old_and_reference"),
    Mutant("rows of advantage 0 run for nothing", READ, "from_loss = self.coefficient != 0 and (has_credit or not self.loss.uses_advantage)",
           "from_loss = self.coefficient != 0", "tests/unit/test_training_gradients.py -k rows_without"),
    Mutant("a warm-up that stands still in an update", STEPS, "learning_rate(self.job.training, self.job.step + number)",
           "learning_rate(self.job.training, self.job.step)", f"{T_STEPS} -k step_of_a_warm_up"),
    Mutant("own rows not scored before the first step", STEPS, "    if len(self.plan) > 1:\n                    self._score", "    if False:\n                    self._score",
           f"{T_STEPS} -k two_epochs"),
    Mutant("each step may drift as far as all", STEPS, "bound * (number + 1) / len(self.plan)", "bound",
           f"{T_STEPS} -k share_of_the_drift"),
    Mutant("a shortened step from elsewhere", STEPS, "was + factor * (parameter - was)", "factor * (parameter - was)",
           f"{T_STEPS} -k share_of_the_drift"),
    Mutant("AdamW counts anew", CHECKPOINT, 'optimiser.state[parameter]["step"] = torch.tensor(steps_taken[name])',
           'optimiser.state[parameter]["step"] = torch.tensor(0.0)', f"{T_RESUME} -k resumed_steps"),
    Mutant("masters forgotten", CHECKPOINT, 'if f"master/{name}" in there:', "if False:", f"{T_RESUME} -k bfloat16"),
    Mutant("an update between corrected for twice", READ, "if overlap else self.has_anchor", "if False else self.has_anchor",
           "tests/unit/test_sampler_ratio.py -k with_overlap"),
    Mutant("sampled by the newest policy in spite of overlap", "r3l/pipeline/policies.py", "config.training.sampled_before(iteration)",
           "iteration - iteration % config.training.sync_interval", f"{T_OVERLAP} -k while_the_update"),
    Mutant("sampled after the update in spite of overlap", ITERATION, "update_beside_sampling if more and bench.config.training.overlap else bench.runner.call",
           "bench.runner.call", f"{T_OVERLAP} -k while_the_update"),
    Mutant("stale rows weighed as on policy", "r3l/pipeline/stages/calls.py", '"truncate" if bench.config.training.overlap else engine.SAMPLER_RATIO',
           "engine.SAMPLER_RATIO", f"{T_OVERLAP} -k while_the_update"),
    Mutant("what was sampled ahead stands in the way", ITERATION, "    if following := store.stages(", "    if following := [] and store.stages(",
           f"{T_OVERLAP} -k other_settings"),
]
# fmt: on

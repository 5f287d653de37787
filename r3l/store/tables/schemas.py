"""Every table as a list of columns: the Arrow schema, the DuckDB view and the data dictionary are made from it."""

from __future__ import annotations

import pyarrow as pa

from r3l.store.tables.columns import BOOL, F32, F64, FLOATS, IDS, INT, STR, STRS, C, Column, N

TASKS = [
    C("iteration", INT, "training iteration, 0-based"),
    C("task", INT, "slot in the iteration's batch, 0-based"),
    C("task_id", STR, "the task's name in its environment; the same task has the same name in every iteration"),
    C("environment", STR, "alfworld, webshop, scienceworld, math or household"),
    C("split", STR, "train, or the name of a test split"),
    C("task_type", STR, "the environment's own kind of task, for breakdowns"),
    C("payload", STR, "JSON: what the environment needs to start the task"),
    C("seed", pa.int64(), "seed of the attempts at this task in this iteration"),
]
TRAJECTORIES = [
    C(
        "trajectory_id",
        STR,
        "e.g. iteration=3/task=17/base=2; the engine's request ids and the log lines begin with it",
    ),
    C("kind", STR, "base, retry, distilled or evaluation"),
    C("iteration", INT, "training iteration"),
    C("task", INT, "slot in the batch"),
    C("task_id", STR, "the task's name"),
    C("task_type", STR, "the environment's kind of task"),
    C("group_id", STR, "exploration group: base and distilled trajectories of one task"),
    C("attempt", INT, "0-based among the attempts of its kind in the group"),
    C("status", STR, "completed, turn_limit, context_limit, invalid_reply, environment_error, engine_error, diverged"),
    C("reason", STR, "why it ended so, in words; empty for completed"),
    C("reward", F32, "R(tau) in [0, 1] (WebShop with preset released: also -0.1)"),
    C("success", BOOL, "the environment's own verdict"),
    C("turns", INT, "turns played (of a retry: prefix included)"),
    C("response_tokens", INT, "|tau|: sampled tokens over all turns (of a retry: its own turns)"),
    C("final_observation", STR, "what the environment said after the last action"),
    C("policy", STR, "digest of the policy snapshot that sampled it"),
    C("seed", pa.int64(), "seed of its sampling"),
    C("seconds", F32, "wall time of the attempt"),
    N("base_id", STR, "of a retry or distilled trajectory: the base it goes back to"),
    N("parent_id", STR, "whose leading turns it keeps: the base, or an earlier distilled trajectory of that base"),
    N("reflection_id", STR, "the reflection that guided it"),
    N("retry_id", STR, "of a distilled trajectory: the retry whose suffix it carries"),
    N("pivot_asked", INT, "retry_from_step as the reflection named it"),
    N("pivot_turn", INT, "the pivot used: number of leading turns kept from the parent"),
    N(
        "shared_turns",
        INT,
        "leading turns truly shared with the base (equal to pivot_turn where the parent is the base)",
    ),
    N(
        "rollback_hashes",
        STRS,
        "of a retry: blake2b-64 of each observation that the rollback returned, turns 0 to pivot_turn; where it "
        "diverged, up to that turn; null where it failed, or was stored before it was recorded",
    ),
]
TURNS = [
    C("trajectory_id", STR, "the trajectory it belongs to; a retry stores only turns >= pivot_turn"),
    C("iteration", INT, "training iteration"),
    C("turn", INT, "0-based"),
    C("observation", STR, "what the environment said before the reply"),
    C("context_ids", IDS, "token ids appended before the reply: glue, observation, generation prompt"),
    C("response_ids", IDS, "token ids exactly as the engine sampled them"),
    C("response_logprobs", FLOATS, "their behaviour log-probabilities at temperature 1"),
    C("response", STR, "the reply as text, without the end-of-turn token"),
    C("action", STR, "the action taken from the reply; empty where the reply was not valid"),
    C("valid", BOOL, "the reply had the asked-for format"),
    C("finish_reason", STR, "stop, length or context"),
    C("observation_hash", STR, "blake2b-64 of the observation: rollback compares it"),
]
ORACLE_PIVOTS = [
    C("trajectory_id", STR, "a base that was not won"),
    C("iteration", INT, "training iteration"),
    C("task", INT, "slot in the batch"),
    C("group_id", STR, "exploration group"),
    N("pivot_turn", INT, "the turn to retry from, by the environment's oracle; null where it has no opinion"),
    C("why", STR, "the oracle's reason, e.g. lost, wasted, slow (household), lost, stalled (ScienceWorld)"),
]
REFLECTIONS = [
    C("reflection_id", STR, "e.g. iteration=3/task=17/base=2/reflection=0"),
    C("trajectory_id", STR, "what it reflects on: the base, or an earlier retry of it"),
    C("base_id", STR, "the base at the root"),
    C("iteration", INT, "training iteration"),
    C("task", INT, "slot in the batch"),
    C("group_id", STR, "exploration group"),
    C("attempt", INT, "0-based among the reflections on this base"),
    C("status", STR, "parsed, invalid, context_limit, engine_error or skipped"),
    C("reason", STR, "what is wrong with it, where it is not parsed"),
    C("text", STR, "the reply, whole"),
    C("report", STR, "the JSON object found in it, unknown keys kept; empty where none"),
    N("outcome", STR, "trajectory_outcome: success, success_but_inefficient or failure"),
    N(
        "pivot_asked",
        INT,
        "retry_from_step as it was given; null where it is no integer of 32 bits: reason has it then",
    ),
    N("pivot_turn", INT, "the pivot after the rule for invalid reflections"),
    C("decision", STR, "retry, or why no retry was run"),
    C("context_ids", IDS, "the reflector's prompt"),
    C("response_ids", IDS, "sampled token ids"),
    C("response_logprobs", FLOATS, "their log-probabilities at temperature 1"),
    C("finish_reason", STR, "stop, length or context"),
    C("policy", STR, "digest of the policy snapshot"),
    C("seed", pa.int64(), "seed of its sampling"),
    C("seconds", F32, "wall time"),
]
CREDIT = [
    C("trajectory_id", STR, "a member of the exploration group"),
    C("group_id", STR, "the group"),
    C("iteration", INT, "training iteration"),
    C("task", INT, "slot in the batch"),
    C("kind", STR, "base or distilled"),
    C("reward", F32, "R(tau)"),
    C("group_size", INT, "members with a reward"),
    C("group_mean", F64, "mean reward of the group"),
    C("group_std", F64, "standard deviation, ddof 1"),
    C("scaled", F64, "A(tau): the advantage before amplification"),
    C("advantage", F64, "A-hat(tau): the advantage after it (paper, Eq. 8)"),
    C(
        "rule",
        STR,
        "which case applied: top, positive, negative, zero, degenerate, alone; RAFT: kept, rejected; DAPO: filtered",
    ),
    C("mask_turn", INT, "turns before it carry no weight (paper, Eq. 7)"),
    C("penalty", F64, "taken off the reward before the group's statistics (DAPO: overlong replies); else 0"),
]
TRAINING_ROWS = [
    C("row_id", STR, "e.g. iteration=3/task=17/distilled=2/row"),
    C("group_id", STR, "the group, whose rows form one token trie"),
    C("iteration", INT, "training iteration"),
    C("source_id", STR, "the trajectory or reflection it was made from"),
    C("role", STR, "explore, reflect, retry, refinement or replay"),
    C("term", STR, "rl or sft: the rows of a term share one normaliser"),
    C("objective", STR, "the loss that reads it, a key of r3l.losses.LOSSES"),
    C("objective_settings", STR, "JSON: clip ranges and the like"),
    C(
        "reduction",
        STR,
        "groups: divided by the batch's groups; tokens: by the term's tokens with weight; sum: by nothing",
    ),
    C("coefficient", F32, "of the term in the total loss"),
    C("kl_coefficient", F32, "0: no reference policy is loaded for it"),
    C("kl_estimator", STR, "none, k1, k2 or k3"),
    C("advantage", F32, "A-hat of the trajectory; 1 for sft rows"),
    C("behaviour_policy", STR, "digest of the policy that sampled it"),
    C("token_ids", IDS, "the whole sequence"),
    C("weights", FLOATS, "aligned with token_ids, >= 0: normaliser x pivot mask; 0 off the trained reply tokens"),
    C(
        "logprobs",
        FLOATS,
        "behaviour log-probabilities, aligned; 0 where not sampled, NaN where sampled behind guidance",
    ),
    C("trained_tokens", INT, "tokens with weight"),
]
REPLAY = [
    C("iteration", INT, "training iteration that learns from the group again"),
    C("group_id", STR, "the group, of an earlier iteration; its rows are in training_rows with role replay"),
    C("source_iteration", INT, "iteration that sampled it"),
    C("age", INT, "iterations between the two"),
    C("uses", INT, "updates that have learned from it, this one included"),
    C("priority", F64, "decay ** -age"),
    C("rows", INT, "training rows taken over"),
]
UPDATES = [
    C("iteration", INT, "training iteration"),
    C("step", INT, "optimiser steps taken by the run, this one included"),
    C("policy", STR, "digest of the snapshot it wrote"),
    C("parent_policy", STR, "digest of the snapshot it started from"),
    C("path", STR, "the new snapshot, relative to the run's folder"),
    C("loss", F64, "total loss"),
    C("loss_rl", F64, "its RL term"),
    C("loss_sft", F64, "its SFT term, before the coefficient"),
    C("loss_kl", F64, "its KL term, before the coefficient"),
    C("grad_norm", F64, "before clipping"),
    C("entropy", F64, "mean entropy (nats) of the policy at the trained reply tokens of bases, which every method has"),
    C("kl_behaviour", F64, "KL to the behaviour policy, k3 estimate on the trained reply tokens of bases"),
    N(
        "kl_start",
        F64,
        "KL to the starting policy, k3 estimate on such tokens of training.kl_start_rows rows, or of all where the "
        "loss has a KL term; null: not measured",
    ),
    C("clip_fraction", F64, "share of trained tokens (or sequences) of bases whose ratio was clipped"),
    C("ratio_mean", F64, "mean importance ratio of the same; 1 where no objective has a ratio"),
    C("learning_rate", F64, "of this step"),
    C("rows", INT, "training rows read"),
    C("groups", INT, "groups of the batch: the denominator of `groups` reductions"),
    C("tokens_rl", pa.int64(), "tokens with weight in the RL term"),
    C("tokens_sft", pa.int64(), "tokens with weight in the SFT term: the denominator of its `tokens` reduction"),
    C("tokens_sequences", pa.int64(), "tokens of all rows, had each been run alone"),
    C("tokens_computed", pa.int64(), "tokens that went through the model: the trie's"),
    C("scoring_passes", INT, "extra forward passes over the trie (old log-probs, reference)"),
    C("reference_tokens", pa.int64(), "tokens scored by a reference policy: 0 where no method asked for it"),
    C("kl_start_tokens", pa.int64(), "tokens scored by the starting policy for kl_start alone"),
    C(
        "canary_error",
        F64,
        "mean |log-prob difference| a token between the engine and the trainer, at most 256 tokens of a trained row",
    ),
    C("seconds", F64, "wall time of the job"),
    C("peak_memory_mb", F64, "peak resident memory of the job (GPU: peak allocated)"),
    N(
        "optimiser",
        STR,
        "digest of the optimiser's state beside the snapshot, which the next step goes on from; empty: no step was "
        "taken so far; null: stored by a version that did not note it",
    ),
]
EVALUATIONS = [
    C("trajectory_id", STR, "the evaluation episode (its turns are in turns)"),
    C("iteration", INT, "iteration whose policy was evaluated: -1 is the starting policy"),
    C("benchmark", STR, "environment and split, e.g. alfworld/heldout"),
    C("format", STR, "answer format, where the environment has several"),
    C("protocol", STR, "single, or attempts=3"),
    N(
        "evaluation",
        STR,
        "digest of all that the evaluation was made with but for the policy: policies evaluated on the same terms have the same",
    ),
    N("data", STR, "what tasks and rewards were made from, e.g. kitchen-0, or the catalogue and what finds nouns"),
    N("split", STR, "the split"),
    N("tasks", INT, "tasks evaluated"),
    N("of_tasks", INT, "tasks of the whole split"),
    N("repeats", INT, "episodes of each task"),
    N("seed", pa.int64(), "drew the sample of tasks and the episodes"),
    C("repeat", INT, "0-based"),
    C("task_id", STR, "the task"),
    C("task_type", STR, "its kind"),
    C("policy", STR, "digest of the snapshot"),
    C("temperature", F32, "of sampling"),
    C("status", STR, "as in trajectories; a failed episode counts as reward 0"),
    C("reward", F32, "R(tau)"),
    C("success", BOOL, "solved"),
    C("turns", INT, "turns played"),
]
EVENTS = [
    C("iteration", INT, "training iteration"),
    C("stage", STR, "the stage that reports it"),
    C("subject_id", STR, "trajectory, reflection or row"),
    C(
        "event",
        STR,
        "dropped, skipped, diverged, unstorable, no_gradient, ...; of the machine: engine_retry, worker_restarted, canary",
    ),
    C("reason", STR, "why, in words"),
    C("detail", STR, "more, where there is more"),
]
TABLES: dict[str, list[Column]] = {
    "tasks": TASKS,
    "trajectories": TRAJECTORIES,
    "turns": TURNS,
    "oracle_pivots": ORACLE_PIVOTS,
    "reflections": REFLECTIONS,
    "credit": CREDIT,
    "training_rows": TRAINING_ROWS,
    "replay": REPLAY,
    "updates": UPDATES,
    "evaluations": EVALUATIONS,
    "events": EVENTS,
}
# The tables that each stage writes. Any stage may write events.
STAGES: dict[str, tuple[str, ...]] = {
    "tasks": ("tasks",),
    "base": ("trajectories", "turns"),
    "oracle_pivots": ("oracle_pivots",),
    "reflections": ("reflections",),
    "retries": ("trajectories", "turns"),
    "distilled": ("trajectories", "turns"),
    "credit": ("credit",),
    "training_rows": ("training_rows",),
    "replay": ("replay", "training_rows"),
    "updates": ("updates",),
    "evaluations": ("evaluations", "trajectories", "turns"),
}


def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of a table."""
    return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in TABLES[table]])


# The version of each stage, raised with every change of what it writes: r3l/store/tables/versions.py reads the older
# ones, newer ones are refused.
VERSIONS: dict[str, int] = dict.fromkeys(STAGES, 1) | {"credit": 2, "evaluations": 4}
VERSIONS |= dict.fromkeys(("base", "retries", "distilled", "updates"), 3)
# Events that tell of the machine, not of an attempt: they account for no attempt, and are left out of content digests.
INCIDENTS = ("engine_retry", "worker_restarted", "canary")
# Columns that differ between two runs of the same work: left out of content digests.
VOLATILE = frozenset({"seconds", "peak_memory_mb"})
# Columns that every view has beside the stored ones: they come from the place of the file.
PLACE = [
    C("run", STR, "the run's name"),
    C("branch", STR, "empty: the run itself; else the replay or fork"),
    N("shard", INT, "shard of the batch; null for stages of the whole batch"),
]

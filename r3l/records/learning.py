"""What is learned from: credit, training rows, replayed groups, and the optimiser's steps."""

from dataclasses import dataclass
from typing import Annotated

from r3l.records.column import Column, Same


@dataclass(frozen=True, slots=True)
class Credit:
    """What one member of an exploration group is worth."""

    trajectory_id: Annotated[str, Column("a member of the exploration group")]
    group_id: Annotated[str, Column("the group")]
    iteration: Annotated[int, Column("training iteration")]
    task: Annotated[int, Column("slot in the batch")]
    kind: Annotated[str, Column("base or distilled")]
    reward: Annotated[float, Column("R(tau)")]
    group_size: Annotated[int, Column("members with a reward")]
    group_mean: Annotated[float, Column("mean reward of the group", bits=64)]
    group_std: Annotated[float, Column("standard deviation, ddof 1", bits=64)]
    scaled: Annotated[float, Column("A(tau): the advantage before amplification", bits=64)]
    advantage: Annotated[float, Column("A-hat(tau): the advantage after it (paper, Eq. 8)", bits=64)]
    rule: Annotated[
        str,
        Column(
            "which case applied: top, positive, negative, zero, degenerate, alone; RAFT: kept, rejected; DAPO: "
            "filtered; Agent-RLVR: chosen, refused, untrained"
        ),
    ]
    mask_turn: Annotated[int, Column("turns before it carry no weight (paper, Eq. 7)")]
    penalty: Annotated[
        float,
        Column(
            "taken off the reward before the group's statistics (DAPO: overlong replies; outcome_gate: all, where no "
            "member of the group solved its task); else 0",
            bits=64,
            since=2,
            before=0.0,
        ),
    ] = 0.0
    turn_advantages: Annotated[
        list[float] | None,
        Column("A-hat of each turn, of methods that credit turns; null: every turn has `advantage`", since=3),
    ] = None


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One sequence for the update job. Loss of a row = sum_t weights[t] * l(logp[t], advantages[t] or advantage,
    ...)."""

    row_id: Annotated[str, Column("e.g. iteration=3/task=17/distilled=2/row")]
    group_id: Annotated[str, Column("the group, whose rows form one token trie")]
    iteration: Annotated[int, Column("training iteration")]
    source_id: Annotated[str, Column("the trajectory or reflection it was made from")]
    role: Annotated[
        str, Column("explore, reflect, retry, refinement or replay: of an earlier iteration, which row_id names")
    ]
    term: Annotated[str, Column("rl or sft: the rows of a term share one normaliser")]
    objective: Annotated[str, Column("the loss that reads it, a key of r3l.losses.LOSSES")]
    objective_settings: Annotated[str, Column("JSON: clip ranges and the like; of a teacher what it reads, too")]
    reduction: Annotated[
        str, Column("groups: divided by the batch's groups; tokens: by the term's tokens with weight; sum: by nothing")
    ]
    coefficient: Annotated[float, Column("of the term in the total loss")]
    kl_coefficient: Annotated[float, Column("0: no reference policy is loaded for it")]
    kl_estimator: Annotated[str, Column("none, k1, k2 or k3")]
    advantage: Annotated[
        float, Column("A-hat of the trajectory; of a meta-task row what it weighs, 1 unless reflections are weighed")
    ]
    behaviour_policy: Annotated[str, Column("digest of the policy that sampled it")]
    token_ids: Annotated[list[int], Column("the whole sequence", dropped_with="tokens")]
    weights: Annotated[
        list[float],
        Column(
            "aligned with token_ids, >= 0: normaliser x pivot mask; 0 off the trained reply tokens",
            dropped_with="tokens",
        ),
    ]
    logprobs: Annotated[
        list[float],
        Column(
            "behaviour log-probabilities, aligned; 0 where not sampled, NaN where sampled behind guidance",
            dropped_with="logprobs",
        ),
    ]
    trained_tokens: Annotated[int, Column("tokens with weight")]
    advantages: Annotated[
        list[float] | None,
        Column(
            "A-hat of the turn that each token is of, aligned with token_ids, 0 off the replies; null: every token has "
            "`advantage`",
            since=2,
            dropped_with="tokens",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ReplayedGroup:
    """A group of an earlier iteration that the update learns from again."""

    iteration: Annotated[int, Column("training iteration that learns from the group again")]
    group_id: Annotated[
        str, Column("the group, of an earlier iteration; its rows are in training_rows with role replay")
    ]
    source_iteration: Annotated[int, Column("iteration that sampled it")]
    age: Annotated[int, Column("iterations between the two")]
    uses: Annotated[int, Column("updates that have learned from it, this one included")]
    priority: Annotated[float, Column("decay ** -age", bits=64)]
    rows: Annotated[int, Column("training rows taken over")]


@dataclass(frozen=True, slots=True)
class OptimiserStep:
    """One optimiser step, as the update job reports it. An update may take several, and writes its policy after the
    last. A figure that does not apply is NaN."""

    iteration: Annotated[int, Column("training iteration")]
    step: Annotated[int, Column("optimiser steps taken by the run, this one included")]
    policy: Annotated[str, Column("digest of the snapshot that its update wrote, after its last step")]
    parent_policy: Annotated[str, Column("digest of the snapshot that its update started from")]
    path: Annotated[str, Column("the new snapshot, relative to the run's folder")]
    loss: Annotated[float, Column("total loss", bits=64)]
    loss_rl: Annotated[float, Column("its RL term", bits=64)]
    loss_sft: Annotated[float, Column("its SFT term, before the coefficient", bits=64)]
    loss_kl: Annotated[float, Column("its KL term, before the coefficient", bits=64)]
    grad_norm: Annotated[float, Column("before clipping", bits=64)]
    entropy: Annotated[
        float,
        Column(
            "mean entropy (nats) of the policy at the trained reply tokens of bases, which every method has", bits=64
        ),
    ]
    kl_behaviour: Annotated[
        float,
        Column(
            "KL to the behaviour policy, k3 estimate on the trained reply tokens of bases",
            bits=64,
            since=2,
            before=Same("kl_start"),
        ),
    ]
    kl_start: Annotated[
        float | None,
        Column(
            "KL to the starting policy, k3 estimate on such tokens of training.kl_start_rows rows, or of all where "
            "the loss has a KL term; null: not measured",
            bits=64,
            since=2,
        ),
    ]
    clip_fraction: Annotated[
        float, Column("share of trained tokens (or sequences) of bases whose ratio was clipped", bits=64)
    ]
    ratio_mean: Annotated[float, Column("mean importance ratio of the same; 1 where no objective has a ratio", bits=64)]
    learning_rate: Annotated[float, Column("of this step", bits=64)]
    rows: Annotated[int, Column("training rows read for the step")]
    groups: Annotated[int, Column("groups of the minibatch: the denominator of `groups` reductions")]
    tokens_rl: Annotated[int, Column("tokens with weight in the RL term", bits=64)]
    tokens_sft: Annotated[
        int, Column("tokens with weight in the SFT term: the denominator of its `tokens` reduction", bits=64)
    ]
    tokens_sequences: Annotated[int, Column("tokens of all rows, had each been run alone", bits=64)]
    tokens_computed: Annotated[int, Column("tokens that went through the model: the trie's", bits=64)]
    scoring_passes: Annotated[int, Column("extra forward passes over the trie (old log-probs, reference)")]
    reference_tokens: Annotated[
        int, Column("tokens scored by a reference policy: 0 where no method asked for it", bits=64)
    ]
    kl_start_tokens: Annotated[
        int, Column("tokens scored by the starting policy for kl_start alone", bits=64, since=2, before=0)
    ]
    canary_error: Annotated[
        float,
        Column(
            "mean |log-prob difference| per token, engine against trainer, over at most 256 tokens of a trained row",
            bits=64,
        ),
    ]
    seconds: Annotated[
        float, Column("wall time of the step; of the first one, loading and writing too", bits=64, volatile=True)
    ]
    peak_memory_mb: Annotated[
        float, Column("peak resident memory of the job (GPU: peak allocated)", bits=64, volatile=True)
    ]
    optimiser: Annotated[
        str | None,
        Column(
            "digest of the optimiser's state beside the snapshot, which the next step goes on from; empty: no "
            "step was taken so far; null: stored by a version that did not note it",
            since=3,
        ),
    ]
    masked_rows: Annotated[
        int, Column("rows of negative advantage that the off-policy mask left out", since=4, before=0)
    ] = 0
    clip_low: Annotated[
        float | None,
        Column("lower clip range that was chosen for the batch; null: each row has its own", bits=64, since=4),
    ] = None
    clip_high: Annotated[float | None, Column("upper clip range, likewise", bits=64, since=4)] = None
    epoch: Annotated[int, Column("0-based: how often its update had visited each group before", since=5, before=0)] = 0
    minibatch: Annotated[
        int,
        Column(
            "part of the batch that it read, 0-based; an epoch visits all, in an order of its own", since=5, before=0
        ),
    ] = 0
    drift_asked: Annotated[
        float | None,
        Column(
            "mean KL per neutral token (nats) from the policy before the update, had the step been taken whole; null: "
            "training.max_drift was empty",
            bits=64,
            since=5,
        ),
    ] = None
    drift: Annotated[float | None, Column("the same after the step as it was taken", bits=64, since=5)] = None
    step_share: Annotated[
        float | None, Column("share of the step's length that was taken; 1: all of it", bits=64, since=5)
    ] = None
    drift_tokens: Annotated[int, Column("neutral tokens that the drift was measured on", since=5, before=0)] = 0


@dataclass(frozen=True, slots=True)
class TrainingScore:
    """What the update found of one training row before it moved the policy, for each token with weight, in their
    order."""

    row_id: Annotated[str, Column("the row of training_rows", since=6)]
    group_id: Annotated[str, Column("its group", since=6)]
    iteration: Annotated[int, Column("training iteration", since=6)]
    logprobs: Annotated[
        list[float],
        Column(
            "log-probabilities by the trainer: of the policy before the update (before the first step that reads the "
            "row, where nothing needs them earlier), or of the one that sampled the row, where a ratio is to it",
            since=6,
            dropped_with="logprobs",
        ),
    ]
    entropies: Annotated[
        list[float],
        Column(
            "entropy (nats) there, of the policy before the first step that reads the row",
            since=6,
            dropped_with="logprobs",
        ),
    ]
    teacher_logprobs: Annotated[
        list[float] | None,
        Column(
            "the same policy's log-probabilities behind the teacher's context; null: the row has no teacher",
            since=6,
            dropped_with="logprobs",
        ),
    ] = None
    cut_tokens: Annotated[
        int | None,
        Column(
            "tokens whose ratio of sampler to trainer was cut or masked; null: no such weight (method.sampler_ratio)",
            since=6,
        ),
    ] = None

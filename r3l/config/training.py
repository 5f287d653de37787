"""The section of the update: its optimiser, its steps, and how it is computed. Descriptions state the bounds, because
forms hide them."""

from typing import Literal

from pydantic import Field

from r3l.config.section import WEEK_S, Section, identity_of
from r3l.stages import stages_that


class TrainingSettings(Section):
    IDENTITY_OF = stages_that(lambda stage: stage.trains)

    learning_rate: float = Field(
        3e-4, gt=0, le=1, description="Learning rate of AdamW, above 0, up to 1 (paper: 1e-6; embedded policy: 3e-4)."
    )
    schedule: Literal["constant", "warmup"] = Field(
        "constant",
        description=(
            "Learning-rate schedule. constant: always the same; warmup: linear warm-up over warmup_steps, then "
            "constant."
        ),
    )
    warmup_steps: int = Field(
        10, ge=1, le=100_000, description="Number of optimiser steps of the warm-up, 1 to 100000."
    )
    epochs: int = Field(
        1,
        ge=1,
        le=1000,
        description=(
            "Number of times that an update visits each group of the batch, 1 to 1000. Losses with a ratio take it to "
            "the policy before the first step."
        ),
    )
    minibatches: int = Field(
        1,
        ge=1,
        le=10_000,
        description=(
            "Number of minibatches that the batch is split into, 1 to 10000. Each holds whole groups and is one "
            "optimiser step of every epoch; there are no more than groups with a gradient."
        ),
    )
    max_drift: float | None = Field(
        None,
        gt=0,
        le=1000,
        description=(
            "Largest drift of an update, in nats per token, above 0, up to 1000: the mean KL divergence from the "
            "policy before the update, on sampled tokens that the objective is silent on. A step that exceeds it is "
            "shortened. If empty, the drift is neither measured nor bounded."
        ),
    )
    scores: bool = Field(
        False,
        description=(
            "Store the log-probability and the entropy of every trained token before the update moves the policy, in "
            "the table training_scores: at most 4 bytes per token, and no further pass. Rows whose loss has a ratio to "
            "the sampler or a teacher are stored in any case."
        ),
        json_schema_extra=identity_of("updates", later=True),
    )
    teacher_average: float = Field(
        0.0,
        ge=0,
        lt=1,
        description=(
            "Part of the way that the teacher moves to the newest policy after each update, 0 to below 1: it is then "
            "an average of policies that begins as the starting one (SDPO: 0.05). 0: the teacher is the policy before "
            "the update. Of methods without a teacher it changes no policy."
        ),
        json_schema_extra=identity_of("updates", later=True),
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="First beta of AdamW, 0 to below 1.")
    beta2: float = Field(0.95, ge=0, lt=1, description="Second beta of AdamW, 0 to below 1.")
    eps: float = Field(
        1e-8, gt=0, le=1, description="Epsilon of AdamW, above 0, up to 1: added to the root of the second moment."
    )
    initial_moments: Literal["none", "measured"] = Field(
        "none",
        description=(
            "Moments of AdamW that the first step of a run begins with. none: none, so that every weight moves by the "
            "learning rate, whatever its gradient is; measured: those that a gradient of each group leaves before "
            "that step, so that weights on which the groups disagree move less, at the cost of one more epoch."
        ),
        json_schema_extra=identity_of("updates", later=True),
    )
    weight_decay: float = Field(0.0, ge=0, le=1, description="Weight decay of AdamW, 0 to 1.")
    max_grad_norm: float = Field(
        1.0,
        gt=0,
        le=1_000_000_000,
        description="Norm that gradients are clipped to, above 0, up to 1000000000 (paper: 1.0).",
    )
    layout: Literal["trie", "padded", "packed"] = Field(
        "trie",
        description=(
            "How the rows of a group are laid out. trie: shared prefixes once, a path at a time on a CPU, and in one "
            "pass on a GPU; padded: one padded batch; packed: rows one after another."
        ),
    )
    micro_batch_tokens: int = Field(
        16384,
        ge=64,
        le=1_000_000_000,
        description="Number of trie tokens per micro-batch, which holds whole groups, 64 to 1000000000.",
        json_schema_extra=identity_of(),
    )
    logits_chunk: int = Field(
        1024,
        ge=16,
        le=10_000_000,
        description="Number of positions whose logits are in memory at the same time, 16 to 10000000.",
        json_schema_extra=identity_of(),
    )
    checkpoint_segments: bool = Field(
        False,
        description="Recompute the activations of long segments in the backward pass: less memory, more time.",
        json_schema_extra=identity_of(),
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Data type of the forward and backward pass. The master weights stay float32."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="Device of the update job. auto: CUDA where there is a GPU, otherwise the CPU.",
        json_schema_extra=identity_of(),
    )
    processes: int = Field(
        1,
        ge=0,
        le=1024,
        description=(
            "Number of processes of the update, 1 to 1024: forks of one thread on a CPU, and torchrun's, one a GPU, "
            "elsewhere. 0: it runs in the flow's own process."
        ),
        json_schema_extra=identity_of(),
    )
    sharding: Literal["none", "fsdp2"] = Field(
        "none", description="How the model is divided among processes. fsdp2: for models that do not fit on one device."
    )
    timeout_s: float = Field(
        3600,
        gt=0,
        le=WEEK_S,
        description="Seconds without a sign of life after which the update job is stopped, above 0, up to 604800.",
        json_schema_extra=identity_of(),
    )
    sync_interval: int = Field(
        1, ge=1, le=1000, description="Number S of updates after which the behaviour policy is renewed, 1 to 1000."
    )
    kl_start_rows: int = Field(
        8,
        ge=0,
        le=1_000_000,
        description=(
            "Number of rows, up to 1000000, on which the KL to the starting policy is measured if the loss has no KL "
            "term. 0: no measurement. With fsdp2 there is none."
        ),
    )
    replay_decay: float = Field(
        2.0,
        ge=1,
        le=1000,
        description="Base of the replay priority, decay ** -age, 1 to 1000. Only with sync_interval above 1.",
        json_schema_extra=identity_of("replay"),
    )
    replay_limit: int = Field(
        3,
        ge=1,
        le=1_000_000,
        description="Largest number of times that a row is trained on, 1 to 1000000. Only with sync_interval above 1.",
        json_schema_extra=identity_of("replay"),
    )
    replay_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the groups that is taken from the replay buffer, 0 to 1. Only with sync_interval above "
        "1.",
        json_schema_extra=identity_of("replay"),
    )

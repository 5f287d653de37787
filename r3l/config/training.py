"""The section of the update: its optimiser, its steps, and how it is computed. Descriptions state the bounds, because
forms hide them."""

from typing import Literal, Self

from pydantic import Field, model_validator

from r3l.config.numbers import above, below, number, within
from r3l.config.section import WEEK_S, Section, identity_of
from r3l.stages import stages_that


class TrainingSettings(Section):
    IDENTITY_OF = stages_that(lambda stage: stage.trains)

    learning_rate: float = number(3e-4, above(0, 1), "Learning rate of AdamW, {} (paper: 1e-6; embedded policy: 3e-4).")
    schedule: Literal["constant", "warmup"] = Field(
        "constant",
        description=(
            "Learning-rate schedule. constant: always the same; warmup: linear warm-up over warmup_steps, then "
            "constant."
        ),
    )
    warmup_steps: int = number(10, within(1, 100_000), "Number of optimiser steps of the warm-up, {}.")
    epochs: int = number(
        1,
        within(1, 1000),
        "Number of times that an update visits each group of the batch, {}. Losses with a ratio take it to the "
        "policy before the first step.",
    )
    minibatches: int = number(
        1,
        within(1, 10_000),
        "Number of minibatches that the batch is split into, {}. Each holds whole groups and is one optimiser step "
        "of every epoch; there are no more than groups with a gradient.",
    )
    max_drift: float | None = number(
        None,
        above(0, 1000),
        "Largest drift of an update, in nats per token, {}: the mean KL divergence from the policy before the "
        "update, on sampled tokens that the objective is silent on. A step that exceeds it is shortened. If empty, "
        "the drift is neither measured nor bounded.",
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
    teacher_average: float = number(
        0.0,
        below(0, 1),
        "Part of the way that the teacher moves to the newest policy after each update, {}: it is then an average of "
        "policies that begins as the starting one (SDPO: 0.05). 0: the teacher is the policy before the update. Of "
        "methods without a teacher it changes no policy.",
        identity_of("updates", later=True),
    )
    beta1: float = number(0.9, below(0, 1), "First beta of AdamW, {}.")
    beta2: float = number(0.95, below(0, 1), "Second beta of AdamW, {}.")
    eps: float = number(1e-8, above(0, 1), "Epsilon of AdamW, {}: added to the root of the second moment.")
    initial_moments: Literal["none", "measured"] = Field(
        "none",
        description=(
            "Moments of AdamW that the first step of a run begins with. none: none, so that every weight moves by the "
            "learning rate, whatever its gradient is; measured: those that a gradient of each group leaves before "
            "that step, so that weights on which the groups disagree move less, at the cost of one more epoch."
        ),
        json_schema_extra=identity_of("updates", later=True),
    )
    weight_decay: float = number(0.0, within(0, 1), "Weight decay of AdamW, {}.")
    max_grad_norm: float = number(1.0, above(0, 1_000_000_000), "Norm that gradients are clipped to, {} (paper: 1.0).")
    layout: Literal["trie", "padded", "packed"] = Field(
        "trie",
        description=(
            "How the rows of a group are laid out. trie: shared prefixes once, a path at a time on a CPU, and in one "
            "pass on a GPU; padded: one padded batch; packed: rows one after another."
        ),
    )
    micro_batch_tokens: int = number(
        16384,
        within(64, 1_000_000_000),
        "Number of trie tokens per micro-batch, which holds whole groups, {}.",
        identity_of(),
    )
    logits_chunk: int = number(
        1024,
        within(16, 10_000_000),
        "Number of positions whose logits are in memory at the same time, {}.",
        identity_of(),
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
    processes: int = number(
        1,
        within(0, 1024),
        "Number of processes of the update, 1 to 1024: forks of one thread on a CPU, and torchrun's, one a GPU, "
        "elsewhere. 0: it runs in the flow's own process.",
        identity_of(),
    )
    sharding: Literal["none", "fsdp2"] = Field(
        "none", description="How the model is divided among processes. fsdp2: for models that do not fit on one device."
    )
    timeout_s: float = number(
        3600,
        above(0, WEEK_S),
        "Seconds without a sign of life after which the update job is stopped, {}.",
        identity_of(),
    )
    sync_interval: int = number(
        1, within(1, 1000), "Number S of updates after which the behaviour policy is renewed, {}."
    )
    overlap: bool = Field(
        False,
        description=(
            "Sample an iteration while the update of the one before runs, in a training of several iterations. The "
            "behaviour policy is then one update older than the policy that is trained: the one that entered the "
            "update before. sampler_ratio=auto becomes truncate, and where a loss has no ratio of its own, that weight "
            "is the ratio of the trained policy to the sampled one."
        ),
        json_schema_extra=identity_of("base", later=True),  # all that follows has it from its parents
    )
    kl_start_rows: int = number(
        8,
        within(0, 1_000_000),
        "Number of rows, up to 1000000, on which the KL to the starting policy is measured if the loss has no KL "
        "term. 0: no measurement. With fsdp2 there is none.",
    )
    replay_decay: float = number(
        2.0,
        within(1, 1000),
        "Base of the replay priority, decay ** -age, {}. Only with sync_interval above 1.",
        identity_of("replay"),
    )
    replay_limit: int = number(
        3,
        within(1, 1_000_000),
        "Largest number of times that a row is trained on, {}. Only with sync_interval above 1.",
        identity_of("replay"),
    )
    replay_share: float = number(
        0.5,
        within(0, 1),
        "Share of the groups that is taken from the replay buffer, {}. Only with sync_interval above 1.",
        identity_of("replay"),
    )

    @model_validator(mode="after")
    def refuse_no_overlap(self) -> Self:
        if self.overlap and self.sync_interval > 1:
            raise ValueError(
                f"overlap=true and sync_interval={self.sync_interval} both say which policy samples: set one of them"
            )
        if self.overlap and self.processes == 0:
            raise ValueError(
                "overlap=true samples beside the update, and with processes=0 that is no process of its own: set "
                "processes to 1 or more"
            )
        return self

    def sampled_before(self, iteration: int) -> int:
        """Say for an iteration before which one the policy that samples it was written: the newest of that time."""
        return max(iteration - 1, 0) if self.overlap else iteration - iteration % self.sync_interval

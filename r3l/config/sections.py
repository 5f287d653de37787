"""The sections that every method, environment and engine shares. Descriptions state the bounds, because forms hide
them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.config.section import WEEK_S, Section, identity_of
from r3l.stages import stages_that


class PolicySettings(Section):
    # the snapshot itself belongs to them by its digest
    IDENTITY_OF = stages_that(lambda stage: stage.samples or stage.trains)

    name: str = Field(
        "embedded",
        description="Name of the policy: a preset in r3l/presets/policies, or a name of your own.",
        json_schema_extra=identity_of(),
    )
    path: str = Field(
        "data/policies/embedded",
        description="Folder of the model in the transformers format, with tokenizer and chat template; or of a peft "
        "adapter, which lies on the model that its adapter_config.json names.",
        json_schema_extra=identity_of(),
    )
    adapter: Literal["none", "lora"] = Field(
        "none",
        description="What is trained. none: all weights; lora: a LoRA adapter of peft.",
        json_schema_extra=identity_of("updates"),
    )
    lora_rank: int = Field(
        16, ge=1, le=512, description="Rank of the LoRA adapter, 1 to 512.", json_schema_extra=identity_of("updates")
    )
    lora_alpha: int = Field(
        32, ge=1, le=1024, description="Alpha of the LoRA adapter, 1 to 1024.", json_schema_extra=identity_of("updates")
    )
    lora_targets: str = Field(
        "all-linear",
        description="Modules that LoRA adapts: all-linear, or module names separated by commas.",
        json_schema_extra=identity_of("updates"),
    )
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Data type of the weights in the engine.")
    context_tokens: int = Field(
        4096, ge=64, le=131072, description="Largest context in tokens, 64 to 131072 (paper: 20480)."
    )
    thinking: bool | None = Field(
        None,
        description="Value of enable_thinking for chat templates that have it (Qwen3). If empty, the template's "
        "default.",
    )


class RolloutSettings(Section):
    IDENTITY_OF = stages_that(lambda stage: stage.samples and stage.sharded)

    tasks: int = Field(
        8,
        ge=1,
        le=100_000,
        description="Number of tasks per iteration, 1 to 100000 (paper: 96).",
        json_schema_extra=identity_of("tasks"),
    )
    group_size: int = Field(
        8, ge=2, le=256, multiple_of=2, description="Number N of trajectories per task: even, 2 to 256."
    )
    tasks_per_shard: int = Field(
        2,
        ge=1,
        le=10_000,
        description="Number of tasks per shard, 1 to 10000. Each stage of a shard is one Prefect task.",
    )
    shards_in_flight: int = Field(
        8,
        ge=1,
        le=1000,
        description="Number of shards that are played at the same time, 1 to 1000.",
        json_schema_extra=identity_of(),
    )
    temperature: float = Field(
        1.0,
        ge=0,
        le=2,
        description="Sampling temperature of base and retry trajectories, 0 to 2 (paper: 1.0).",
        json_schema_extra=identity_of("base", "retries", "continuations"),
    )
    reflection_temperature: float = Field(
        0.7,
        ge=0,
        le=2,
        description="Sampling temperature of reflections, 0 to 2 (paper: 0.7, release: 1.0).",
        json_schema_extra=identity_of("reflections"),
    )
    reflection_tokens: int = Field(
        192,
        ge=16,
        le=32768,
        description="Largest number of tokens per reflection, 16 to 32768 (paper: 4096).",
        json_schema_extra=identity_of("reflections"),
    )
    structured_reflections: bool = Field(
        False,
        description="Constrain reflections to the JSON schema, with the pivot within the episode's turns.",
        json_schema_extra=identity_of("reflections"),
    )
    reflection_context: Literal["transcript", "continued"] = Field(
        "transcript",
        description=(
            "What the policy reads when it reflects. transcript: a new conversation that holds the attempt as one text "
            "with numbered turns; continued: the attempt's own conversation, then a last message that asks for the "
            "reflection, so that a prefix cache computes only that message. A teacher always reads the transcript."
        ),
        json_schema_extra=identity_of("reflections"),
    )
    max_failed_share: float = Field(
        0.10,
        ge=0,
        le=1,
        description=(
            "Share of a stage's attempts that may end by errors of the engine or the environment, 0 to 1. Above it "
            "the stage fails and stores nothing; below it the rows stay and are counted in the summary."
        ),
        json_schema_extra=identity_of(),
    )


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
    beta1: float = Field(0.9, ge=0, lt=1, description="First beta of AdamW, 0 to below 1.")
    beta2: float = Field(0.95, ge=0, lt=1, description="Second beta of AdamW, 0 to below 1.")
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
            "How the rows of a group are laid out. trie: one pass over shared prefixes; padded: one padded batch; "
            "packed: rows one after another."
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


class EvaluationSettings(Section):
    IDENTITY_OF = stages_that(lambda stage: stage.tasks_of == "evaluation")

    benchmark: str = Field(
        "",
        description="Benchmark in r3l/evaluation/benchmarks.py. If empty, the run's own environment on the split "
        "below.",
    )
    split: str = Field("heldout", description="Split of the environment that is evaluated.")
    answer_format: str = Field(
        "",
        description=(
            "How replies mark their answer in math: answer or boxed. If empty, the first format of the benchmark."
        ),
    )
    attempts: int = Field(
        1,
        ge=1,
        le=100,
        description=("Number of attempts per math problem, 1 to 100. Each number of attempts is reported separately."),
    )
    tasks: int = Field(
        60, ge=0, le=100_000, description="Number of tasks that are evaluated, up to 100000. 0: the whole split."
    )
    sample: Literal["stratified", "first"] = Field(
        "stratified",
        description=(
            "Which tasks of a split are evaluated. stratified: drawn by the seed, with each task type in its "
            "share; first: the first ones."
        ),
    )
    repeats: int = Field(1, ge=1, le=100, description="Number of episodes per task, 1 to 100.")
    temperature: float = Field(0.4, ge=0, le=2, description="Sampling temperature, 0 to 2 (paper: 0.4).")
    every: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Number of iterations of `r3l train`, up to 100000, between two evaluations. 0: no evaluation.",
        json_schema_extra=identity_of(),
    )


class StoreSettings(Section):
    IDENTITY_OF = ()

    root: str = Field(
        "",
        description=(
            "Folder or s3:// address of the store. If empty, R3L_STORE, else data/runs in R3L_HOME or in the checkout."
        ),
    )

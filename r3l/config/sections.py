"""The sections that are the same for every method, environment and engine. A form hides bounds: descriptions say
them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.config.section import Section, identity_of


class PolicySettings(Section):
    IDENTITY_OF = (
        "base",
        "reflections",
        "retries",
        "updates",
        "evaluations",
    )  # the snapshot itself belongs to them by its digest

    name: str = Field(
        "embedded", description="a preset of r3l/presets/models, or a name of your own", json_schema_extra=identity_of()
    )
    path: str = Field(
        "data/policies/embedded",
        description="a transformers folder with tokenizer and chat template",
        json_schema_extra=identity_of(),
    )
    adapter: Literal["none", "lora"] = Field(
        "none",
        description="none: train all weights; lora: train a peft adapter",
        json_schema_extra=identity_of("updates"),
    )
    lora_rank: int = Field(
        16, ge=1, le=512, description="LoRA rank, 1 to 512", json_schema_extra=identity_of("updates")
    )
    lora_alpha: int = Field(
        32, ge=1, le=1024, description="LoRA alpha, 1 to 1024", json_schema_extra=identity_of("updates")
    )
    lora_targets: str = Field(
        "all-linear",
        description="peft target modules: all-linear, or names with commas",
        json_schema_extra=identity_of("updates"),
    )
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="of the weights in the engine")
    context_tokens: int = Field(
        4096, ge=64, le=131072, description="context limit in tokens, 64 to 131072 (paper: 20480)"
    )
    thinking: bool | None = Field(
        None, description="enable_thinking of templates that have it (Qwen3); empty: the template's default"
    )


class RolloutSettings(Section):
    IDENTITY_OF = ("base", "reflections", "retries")

    tasks: int = Field(
        8,
        ge=1,
        le=100_000,
        description="tasks in an iteration, 1 to 100000 (paper: 96)",
        json_schema_extra=identity_of("tasks"),
    )
    group_size: int = Field(8, ge=2, le=256, multiple_of=2, description="N, trajectories per task: even, 2 to 256")
    tasks_per_shard: int = Field(2, ge=1, le=10_000, description="tasks in one Prefect task, 1 to 10000")
    shards_in_flight: int = Field(
        8, ge=1, le=1000, description="shards worked on at once, 1 to 1000", json_schema_extra=identity_of()
    )
    temperature: float = Field(
        1.0,
        ge=0,
        le=2,
        description="of base and retry sampling, 0 to 2 (paper: 1.0)",
        json_schema_extra=identity_of("base", "retries"),
    )
    reflection_temperature: float = Field(
        0.7, ge=0, le=2, description="0 to 2 (paper: 0.7, released: 1.0)", json_schema_extra=identity_of("reflections")
    )
    reflection_tokens: int = Field(
        192,
        ge=16,
        le=32768,
        description="limit of a reflection, 16 to 32768 (paper: 4096)",
        json_schema_extra=identity_of("reflections"),
    )
    structured_reflections: bool = Field(
        False,
        description="constrain reflections to the JSON schema, pivot bounded",
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
    IDENTITY_OF = ("updates",)

    learning_rate: float = Field(3e-4, gt=0, le=1, description="above 0, up to 1 (paper: 1e-6; embedded policy: 3e-4)")
    schedule: Literal["constant", "warmup"] = Field("constant", description="constant, or linear warm-up then constant")
    warmup_steps: int = Field(10, ge=1, le=100_000, description="steps of the warm-up, 1 to 100000")
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW, 0 to below 1")
    beta2: float = Field(0.95, ge=0, lt=1, description="AdamW, 0 to below 1")
    weight_decay: float = Field(0.0, ge=0, le=1, description="AdamW, 0 to 1")
    max_grad_norm: float = Field(1.0, gt=0, description="gradient clipping, above 0 (paper: 1.0)")
    layout: Literal["trie", "padded", "packed"] = Field("trie", description="trie: one pass over shared prefixes")
    micro_batch_tokens: int = Field(
        16384,
        ge=64,
        description="trie tokens per micro-batch of whole groups, 64 or more",
        json_schema_extra=identity_of(),
    )
    logits_chunk: int = Field(
        1024, ge=16, description="positions whose logits are held at once, 16 or more", json_schema_extra=identity_of()
    )
    checkpoint_segments: bool = Field(
        False,
        description="recompute activations of long segments in the backward pass",
        json_schema_extra=identity_of(),
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="forward and backward; master weights stay float32"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where the update job runs", json_schema_extra=identity_of()
    )
    processes: int = Field(
        1,
        ge=0,
        le=1024,
        description="torchrun processes, 1 to 1024; 0: the update runs in the flow's own process",
        json_schema_extra=identity_of(),
    )
    sharding: Literal["none", "fsdp2"] = Field("none", description="fsdp2 for models that don't fit on one device")
    timeout_s: float = Field(
        3600,
        gt=0,
        description="seconds without a sign of life before the job is stopped",
        json_schema_extra=identity_of(),
    )
    sync_interval: int = Field(
        1, ge=1, le=1000, description="S: updates per renewal of the behaviour policy, 1 to 1000"
    )
    kl_start_rows: int = Field(
        8,
        ge=0,
        description="rows whose KL to the starting policy is measured where the loss has none; 0: none "
        "(nor with fsdp2)",
    )
    replay_decay: float = Field(
        2.0,
        gt=0,
        description="replay priority = decay ** -age, above 0 (only S > 1)",
        json_schema_extra=identity_of("replay"),
    )
    replay_limit: int = Field(
        3, ge=1, description="uses of one row at most, 1 or more (only S > 1)", json_schema_extra=identity_of("replay")
    )
    replay_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="groups taken from the replay buffer, 0 to 1 (only S > 1)",
        json_schema_extra=identity_of("replay"),
    )


class EvaluationSettings(Section):
    IDENTITY_OF = ("evaluations",)

    benchmark: str = Field(
        "", description="a name of r3l/evaluation/benchmarks.py; empty: the run's own environment, on the split below"
    )
    split: str = Field("heldout", description="a split of the environment")
    answer_format: str = Field("", description="answer or boxed, for mathematics; empty: the benchmark's first")
    attempts: int = Field(1, ge=1, le=100, description="attempts at a problem of mathematics, 1 to 100; reported apart")
    tasks: int = Field(60, ge=0, description="tasks evaluated, 1 or more; 0: the whole split")
    sample: Literal["stratified", "first"] = Field(
        "stratified",
        description="which tasks of a split: stratified, drawn by the seed with each task type in its share; or the first",
    )
    repeats: int = Field(1, ge=1, le=100, description="episodes per task, 1 to 100")
    temperature: float = Field(0.4, ge=0, le=2, description="0 to 2 (paper: 0.4)")
    every: int = Field(
        0,
        ge=0,
        description="evaluate after every K iterations of `r3l train`; 0: never",
        json_schema_extra=identity_of(),
    )


class StoreSettings(Section):
    IDENTITY_OF = ()

    root: str = Field(
        "", description="a folder or s3:// address; empty: R3L_STORE, else data/runs in R3L_HOME or the checkout"
    )

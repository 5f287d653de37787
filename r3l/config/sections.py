"""The sections that every method, environment and engine shares. Descriptions state the bounds, because forms hide
them."""

from typing import Literal

from pydantic import Field

from r3l.config.section import Section, identity_of
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

"""The sections that every method, environment and engine shares. Descriptions state the bounds, because forms hide
them."""

from typing import Literal

from pydantic import Field

from r3l.config.numbers import above, number, within
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
    lora_rank: int = number(16, within(1, 512), "Rank of the LoRA adapter, {}.", identity_of("updates"))
    lora_alpha: int = number(32, within(1, 1024), "Alpha of the LoRA adapter, {}.", identity_of("updates"))
    lora_targets: str = Field(
        "all-linear",
        description="Modules that LoRA adapts: all-linear, or module names separated by commas.",
        json_schema_extra=identity_of("updates"),
    )
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Data type of the weights in the engine.")
    context_tokens: int = number(4096, within(64, 131072), "Largest context in tokens, {} (paper: 20480).")
    thinking: bool | None = Field(
        None,
        description="Value of enable_thinking for chat templates that have it (Qwen3). If empty, the template's "
        "default.",
    )


class RolloutSettings(Section):
    IDENTITY_OF = stages_that(lambda stage: stage.samples and stage.sharded)

    tasks: int = number(8, within(1, 100_000), "Number of tasks per iteration, {} (paper: 96).", identity_of("tasks"))
    group_size: int = number(8, within(2, 256), "Number N of trajectories per task: even, {}.", multiple_of=2)
    tasks_per_shard: int = number(
        2, within(1, 10_000), "Number of tasks per shard, {}. Each stage of a shard is one Prefect task."
    )
    shards_in_flight: int = number(
        8, within(1, 1000), "Number of shards that are played at the same time, {}.", identity_of()
    )
    temperature: float = number(
        1.0,
        within(0, 2),
        "Sampling temperature of base and retry trajectories, {} (paper: 1.0).",
        identity_of("base", "retries", "continuations"),
    )
    reflection_temperature: float = number(
        0.7,
        within(0, 2),
        "Sampling temperature of reflections, {} (paper: 0.7, release: 1.0).",
        identity_of("reflections"),
    )
    reflection_tokens: int = number(
        192, within(16, 32768), "Largest number of tokens per reflection, {} (paper: 4096).", identity_of("reflections")
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
    max_failed_share: float = number(
        0.10,
        within(0, 1),
        "Share of a stage's attempts that may end by errors of the engine or the environment, {}. Above it the stage "
        "fails and stores nothing; below it the rows stay and are counted in the summary.",
        identity_of(),
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
    attempts: int = number(
        1, within(1, 100), "Number of attempts per math problem, {}. Each number of attempts is reported separately."
    )
    tasks: int = number(60, within(0, 100_000), "Number of tasks that are evaluated, up to 100000. 0: the whole split.")
    sample: Literal["stratified", "first"] = Field(
        "stratified",
        description=(
            "Which tasks of a split are evaluated. stratified: drawn by the seed, with each task type in its "
            "share; first: the first ones."
        ),
    )
    repeats: int = number(1, within(1, 100), "Number of episodes per task, {}.")
    temperature: float = number(0.4, within(0, 2), "Sampling temperature, {} (paper: 0.4).")
    every: int = number(
        0,
        within(0, 100_000),
        "Number of iterations of `r3l train`, up to 100000, between two evaluations. 0: no evaluation.",
        identity_of(),
    )

    def follows(self, iteration: int) -> bool:
        """Tell whether an evaluation follows a training iteration, by `every`."""
        return bool(self.every) and (iteration + 1) % self.every == 0


class StoreSettings(Section):
    IDENTITY_OF = ()

    root: str = Field(
        "",
        description=(
            "Folder or s3:// address of the store. If empty, R3L_STORE, else data/runs in R3L_HOME or in the checkout."
        ),
    )


Tracker = Literal["tensorboard", "mlflow", "wandb", "trackio"]


class TrackingSettings(Section):
    IDENTITY_OF = ()

    to: list[Tracker] = Field(
        default_factory=list,
        description="Trackers that receive the metrics after each iteration: tensorboard, mlflow, wandb, trackio.",
    )
    tensorboard: str = Field("", description="Log folder of TensorBoard. If empty, runs.")
    mlflow: str = Field(
        "", description="Tracking URI of MLflow. If empty, MLFLOW_TRACKING_URI, else MLflow's own default."
    )
    wandb: str = Field("", description="Project in Weights & Biases. If empty, r3l.")
    trackio: str = Field("", description="Project in Trackio. If empty, r3l.")
    timeout_s: float = number(120, above(0, WEEK_S), "Seconds after which a tracker counts as unreachable, {}.")


class PlacementSettings(Section):
    IDENTITY_OF = ()

    shards: Literal["here", "workers", "ray"] = Field(
        "here",
        description=(
            "Where shards of tasks are played. here: in threads of the flow; workers: in one flow run of "
            "shard_deployment per shard; ray: in tasks of a Ray cluster."
        ),
    )
    shard_deployment: str = Field(
        "r3l-shard/shard", description="Deployment of the flow r3l-shard. All hosts need a store that they share."
    )
    ray_address: str = Field(
        "",
        description=(
            "Address of the Ray cluster: ray://HOST:10001, or auto. If empty, a Ray on this machine is started "
            "for the run."
        ),
    )
    update_deployment: str = Field(
        "",
        description=(
            "Deployment that runs the update, such as r3l-update/update. If empty, the update is a process beside "
            "the flow."
        ),
    )
    attempts: int = number(
        3,
        within(1, 100),
        "Number of times that a job is started if its host is lost, {}. A job that fails is not started again.",
    )
    silent_s: float = number(
        120, within(1, WEEK_S), "Seconds without a heartbeat after which the host of a remote job counts as lost, {}."
    )
    heartbeat_s: float = number(10, within(0.1, 3600), "Seconds between two heartbeats of a remote job, {}.")

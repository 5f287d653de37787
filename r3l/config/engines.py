"""Settings of each engine, one class per engine."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from r3l.config.kinds import Kinds
from r3l.config.section import WEEK_S, Member, identity_of
from r3l.stages import stages_that

TINY = 30_000_000  # parameters up to which a second thread of torch costs more than it gives


class EngineSettings(Member):
    IDENTITY_OF = stages_that(lambda stage: stage.samples)
    SAMPLER_RATIO: ClassVar[Literal["none", "truncate"]] = "truncate"  # what method.sampler_ratio=auto means

    canary_tolerance: float = Field(
        0.0,
        ge=0,
        le=100,
        description=(
            "Largest accepted mean difference per token between the log-probabilities of the engine and of the "
            "trainer, 0 to 100 nats. 0: a default for the dtype."
        ),
        json_schema_extra=identity_of(),
    )


class TransformersLocalSettings(EngineSettings):
    kind: Literal["transformers_local"] = "transformers_local"
    SAMPLER_RATIO = "none"  # the trainer's own arithmetic
    max_batch: int = Field(
        64,
        ge=1,
        le=4096,
        description="Number of sequences that are decoded together, 1 to 4096.",
        json_schema_extra=identity_of(),
    )
    cache_tokens: int = Field(
        400_000,
        ge=0,
        le=1_000_000_000,
        description="Number of tokens whose keys and values are kept for later turns and retries, 0 to 1000000000.",
        json_schema_extra=identity_of(),
    )
    threads: int = Field(
        0,
        ge=0,
        le=256,
        description="Number of torch threads, 0 to 256. 0: one for a tiny policy, otherwise one per core.",
        json_schema_extra=identity_of(),
    )
    batch_invariant: bool = Field(
        True,
        description=(
            "Compute the same bits of a reply whatever else is in flight (on a CPU with a C compiler). False: the last "
            "digits of log-probabilities depend on the batch, and an iteration takes less time: 5 % where it was "
            "measured (data/PERFORMANCE.md)."
        ),
        json_schema_extra=identity_of(),
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="Device that samples. auto: CUDA where there is a GPU, otherwise the CPU.",
        json_schema_extra=identity_of(),
    )


class VllmServerSettings(EngineSettings):
    kind: Literal["vllm_server"] = "vllm_server"
    urls: str = Field(
        "http://127.0.0.1:8000",
        description=(
            "Addresses of the vLLM servers, separated by commas. dns://NAME:PORT stands for all hosts behind a name."
        ),
        json_schema_extra=identity_of(),
    )
    health_s: float = Field(
        10,
        ge=0.05,
        le=3600,
        description="Seconds between two health checks, 0.05 to 3600. A server that misses three checks is no longer "
        "used.",
        json_schema_extra=identity_of(),
    )
    puller_port: int = Field(
        0,
        ge=0,
        le=65535,
        description=(
            "Port of `python -m flows.placement.puller` beside each server, 1 to 65535. 0: the servers read the "
            "trainer's paths themselves."
        ),
        json_schema_extra=identity_of(),
    )
    api_key_env: str = Field(
        "R3L_ENGINE_KEY",
        description="Environment variable that holds the API key of the servers.",
        json_schema_extra=identity_of(),
    )
    timeout_s: float = Field(
        600,
        gt=0,
        le=WEEK_S,
        description="Time limit of one call in seconds, above 0, up to 604800.",
        json_schema_extra=identity_of(),
    )
    retries: int = Field(
        5,
        ge=0,
        le=100,
        description="Number of further tries of a failed call, 0 to 100.",
        json_schema_extra=identity_of(),
    )
    adopt: bool = Field(
        False,
        description=(
            "Use the policy that a running server has and load none, because another client loads policies into it."
        ),
        json_schema_extra=identity_of(),
    )
    connections: int = Field(
        256, ge=1, le=10_000, description="Number of calls in flight, 1 to 10000.", json_schema_extra=identity_of()
    )
    sleep: Literal[0, 1, 2] = Field(
        0,
        description="Whether the servers sleep while an update runs on this host. 0: no. 1: yes, with their weights in "
        "the host's memory. 2: yes, without weights, which are read again afterwards.",
        json_schema_extra=identity_of(),
    )
    gpus: str = Field(
        "",
        pattern=r"^(\d+(,\d+)*)?$",
        description="GPUs on each of which the run starts a server of its own, for example 0 or 4,5,6,7. If empty, the "
        "run starts none and uses the servers at urls.",
        json_schema_extra=identity_of(),
    )
    memory_share: float = Field(
        0.9,
        gt=0,
        le=0.98,
        description="Share of a GPU's memory that a server of the run takes while it is awake, above 0, up to 0.98.",
        json_schema_extra=identity_of(),
    )
    start_s: float = Field(
        900,
        gt=0,
        le=WEEK_S,
        description="Seconds that a server of the run may take until it answers, above 0, up to 604800.",
        json_schema_extra=identity_of(),
    )
    batch_invariant: bool = Field(
        False,
        description=(
            "Start the run's own servers with VLLM_BATCH_INVARIANT=1, so that a reply does not depend on the others in "
            "flight. It needs a GPU for which vLLM has it, and takes longer. Start other servers with that variable "
            "yourself."
        ),
        json_schema_extra=identity_of(),
    )
    restarts: int = Field(
        3,
        ge=0,
        le=100,
        description=(
            "Number of times that a server of the run that died is started again between two loads of a policy, 0 to "
            "100."
        ),
        json_schema_extra=identity_of(),
    )


ENGINE_KINDS = Kinds("engine", EngineSettings, (TransformersLocalSettings, VllmServerSettings))
AnyEngine = Annotated[EngineSettings, ENGINE_KINDS]

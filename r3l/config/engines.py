"""Settings of each engine, one class per engine."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from r3l.config.kinds import Kinds
from r3l.config.numbers import above, number, within
from r3l.config.section import WEEK_S, Member, identity_of
from r3l.stages import stages_that

TINY = 30_000_000  # parameters up to which a second thread of torch costs more than it gives


class EngineSettings(Member):
    IDENTITY_OF = stages_that(lambda stage: stage.samples)
    SAMPLER_RATIO: ClassVar[Literal["none", "truncate"]] = "truncate"  # what method.sampler_ratio=auto means

    canary_tolerance: float = number(
        0.0,
        within(0, 100),
        "Largest accepted mean difference per token between the log-probabilities of the engine and of the trainer, "
        "{} nats. 0: a default for the dtype.",
        identity_of(),
    )


class TransformersLocalSettings(EngineSettings):
    kind: Literal["transformers_local"] = "transformers_local"
    SAMPLER_RATIO = "none"  # the trainer's own arithmetic
    max_batch: int = number(64, within(1, 4096), "Number of sequences that are decoded together, {}.", identity_of())
    cache_tokens: int = number(
        400_000,
        within(0, 1_000_000_000),
        "Number of tokens whose keys and values are kept for later turns and retries, {}.",
        identity_of(),
    )
    threads: int = number(
        0,
        within(0, 256),
        "Number of torch threads, {}. 0: one for a tiny policy, otherwise one per core.",
        identity_of(),
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
    health_s: float = number(
        10,
        within(0.05, 3600),
        "Seconds between two health checks, {}. A server that misses three checks is no longer used.",
        identity_of(),
    )
    puller_port: int = number(
        0,
        within(0, 65535),
        "Port of `python -m flows.placement.puller` beside each server, 1 to 65535. 0: the servers read the "
        "trainer's paths themselves.",
        identity_of(),
    )
    api_key_env: str = Field(
        "R3L_ENGINE_KEY",
        description="Environment variable that holds the API key of the servers.",
        json_schema_extra=identity_of(),
    )
    timeout_s: float = number(600, above(0, WEEK_S), "Time limit of one call in seconds, {}.", identity_of())
    retries: int = number(5, within(0, 100), "Number of further tries of a failed call, {}.", identity_of())
    adopt: bool = Field(
        False,
        description=(
            "Use the policy that a running server has and load none, because another client loads policies into it."
        ),
        json_schema_extra=identity_of(),
    )
    connections: int = number(256, within(1, 10_000), "Number of calls in flight, {}.", identity_of())
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
    memory_share: float = number(
        0.9,
        above(0, 0.98),
        "Share of a GPU's memory that a server of the run takes while it is awake, {}.",
        identity_of(),
    )
    start_s: float = number(
        900, above(0, WEEK_S), "Seconds that a server of the run may take until it answers, {}.", identity_of()
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
    restarts: int = number(
        3,
        within(0, 100),
        "Number of times that a server of the run that died is started again between two loads of a policy, {}.",
        identity_of(),
    )


ENGINE_KINDS = Kinds("engine", EngineSettings, (TransformersLocalSettings, VllmServerSettings))
AnyEngine = Annotated[EngineSettings, ENGINE_KINDS]

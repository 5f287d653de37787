"""Settings of each engine: one member of a union each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from r3l.config.section import Member, any_of, identity_of


class EngineSettings(Member):
    IDENTITY_OF = ("base", "reflections", "retries", "evaluations")

    canary_tolerance: float = Field(
        0.0,
        ge=0,
        description="mean log-probability difference to the trainer, a token; 0: by dtype",
        json_schema_extra=identity_of(),
    )


class TransformersLocalSettings(EngineSettings):
    kind: Literal["transformers_local"] = "transformers_local"
    max_batch: int = Field(
        64, ge=1, le=4096, description="sequences decoded together, 1 to 4096", json_schema_extra=identity_of()
    )
    cache_tokens: int = Field(
        400_000,
        ge=0,
        description="key/value tokens kept for later turns and retries, 0 or more",
        json_schema_extra=identity_of(),
    )
    threads: int = Field(
        0,
        ge=0,
        le=256,
        description="torch threads, 0: one for a tiny policy, else as many as cores",
        json_schema_extra=identity_of(),
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where it samples", json_schema_extra=identity_of()
    )


class VllmServerSettings(EngineSettings):
    kind: Literal["vllm_server"] = "vllm_server"
    urls: str = Field(
        "http://127.0.0.1:8000",
        description="addresses of the servers, with commas; dns://NAME:PORT: all behind a name",
        json_schema_extra=identity_of(),
    )
    health_s: float = Field(
        10,
        ge=0.05,
        description="seconds between health checks; a server that misses three is not used",
        json_schema_extra=identity_of(),
    )
    puller_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="port of `python -m r3l.store.policies.puller` beside each server; 0: servers see the "
        "trainer's paths",
        json_schema_extra=identity_of(),
    )
    api_key_env: str = Field(
        "R3L_ENGINE_KEY",
        description="environment variable that holds the servers' key",
        json_schema_extra=identity_of(),
    )
    timeout_s: float = Field(600, gt=0, description="seconds for one call", json_schema_extra=identity_of())
    retries: int = Field(
        5, ge=0, le=100, description="further tries of a failed call, 0 to 100", json_schema_extra=identity_of()
    )
    adopt: bool = Field(
        False,
        description="another client loads the policy: a server that runs is taken as it is",
        json_schema_extra=identity_of(),
    )
    connections: int = Field(
        256, ge=1, le=10_000, description="calls in flight, 1 to 10000", json_schema_extra=identity_of()
    )


class VllmLocalSettings(EngineSettings):
    kind: Literal["vllm_local"] = "vllm_local"
    memory_share: float = Field(
        0.45,
        gt=0,
        le=0.95,
        description="share of GPU memory for the engine, up to 0.95",
        json_schema_extra=identity_of(),
    )


AnyEngine = Annotated[
    TransformersLocalSettings | VllmServerSettings | VllmLocalSettings,
    Field(discriminator="kind", json_schema_extra=any_of),
]

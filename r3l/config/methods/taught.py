"""Settings of methods whose teacher is the policy itself, behind a context that knows more."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.config.methods.shared import KL, NORMALISATION, SCALE, ClippedSettings, MethodSettings, Normalisation
from r3l.config.section import identity_of


class TaughtSettings(MethodSettings):
    taught_by: Literal["success", "guidance"] = Field(
        "success",
        description=(
            "What the teacher reads before a trajectory's own replies. success: another attempt at the task that "
            "solved it; guidance: the reflection on the trajectory, where its retry was told it."
        ),
    )
    teacher_tokens: int = Field(
        4096,
        ge=1,
        le=10_000_000,
        description=(
            "Largest number of tokens that the teacher reads, replies included, 1 to 10000000. A trajectory whose "
            "teacher would read more has none."
        ),
    )


class SDPOSettings(TaughtSettings):
    kind: Literal["sdpo"] = "sdpo"
    loss_normalisation: Normalisation = Field("token", description=NORMALISATION)
    most_ratio: float = Field(
        2.0,
        ge=1,
        le=1000,
        description="Largest importance ratio to the policy before the update, 1 to 1000. With one step it is 1.",
    )


class RLSDSettings(ClippedSettings, TaughtSettings):
    kind: Literal["rlsd"] = "rlsd"
    kl_coefficient: float = Field(0.0, ge=0, le=10, description=KL)
    teacher_mix: float = Field(
        0.5, ge=0, le=1, description="Share of the teacher in the size of an advantage at the first iteration, 0 to 1."
    )
    teacher_mix_iterations: int = Field(
        100,
        ge=1,
        le=1_000_000,
        description="Number of iterations over which teacher_mix falls to 0, 1 to 1000000 (RLSD: 100; SERL: 50).",
    )
    teacher_weighs: Literal["all", "action"] = Field(
        "all",
        description=(
            "Which tokens of a reply the teacher weighs. all: every one (RLSD); action: those that the text of the "
            "parsed action reaches into, while the others keep the advantage as it is (SERL)."
        ),
        json_schema_extra=identity_of("training_rows", later=True),
    )
    teacher_clip: float = Field(
        0.2, ge=0, lt=1, description="The teacher's weight stays within 1 minus and 1 plus this value, 0 to below 1."
    )


class RLTFSDSettings(MethodSettings):
    kind: Literal["rltf_sd"] = "rltf_sd"
    scale: Literal["std", "none"] = Field("none", description=SCALE)

"""Settings of methods whose teacher is the policy itself, behind a context that knows more."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.config.methods.shared import KL, NORMALISATION, SCALE, ClippedSettings, MethodSettings, Normalisation
from r3l.config.numbers import below, number, within
from r3l.config.section import identity_of


class TaughtSettings(MethodSettings):
    taught_by: Literal["success", "guidance"] = Field(
        "success",
        description=(
            "What the teacher reads before a trajectory's own replies. success: another attempt at the task that "
            "solved it; guidance: the reflection on the trajectory, where its retry was told it."
        ),
    )
    teacher_tokens: int = number(
        4096,
        within(1, 10_000_000),
        "Largest number of tokens that the teacher reads, replies included, {}. A trajectory whose teacher would "
        "read more has none.",
    )


class SDPOSettings(TaughtSettings):
    kind: Literal["sdpo"] = "sdpo"
    loss_normalisation: Normalisation = Field("token", description=NORMALISATION)
    most_ratio: float = number(
        2.0, within(1, 1000), "Largest importance ratio to the policy before the update, {}. With one step it is 1."
    )


class RLSDSettings(ClippedSettings, TaughtSettings):
    kind: Literal["rlsd"] = "rlsd"
    kl_coefficient: float = number(0.0, within(0, 10), KL)
    teacher_mix: float = number(
        0.5, within(0, 1), "Share of the teacher in the size of an advantage at the first iteration, {}."
    )
    teacher_mix_iterations: int = number(
        100, within(1, 1_000_000), "Number of iterations over which teacher_mix falls to 0, {} (RLSD: 100; SERL: 50)."
    )
    teacher_weighs: Literal["all", "action"] = Field(
        "all",
        description=(
            "Which tokens of a reply the teacher weighs. all: every one (RLSD); action: those that the text of the "
            "parsed action reaches into, while the others keep the advantage as it is (SERL)."
        ),
        json_schema_extra=identity_of("training_rows", later=True),
    )
    teacher_clip: float = number(
        0.2, below(0, 1), "The teacher's weight stays within 1 minus and 1 plus this value, {}."
    )


class RLTFSDSettings(MethodSettings):
    kind: Literal["rltf_sd"] = "rltf_sd"
    scale: Literal["std", "none"] = Field("none", description=SCALE)

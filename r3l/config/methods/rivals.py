"""Settings of R3L's rivals, one class per method. data/METHODS.md explains them; presets hold the values."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from r3l.config.methods.shared import (
    CLIP_HIGH,
    CLIP_LOW,
    GUIDANCE,
    INVALID,
    KL,
    NORMALISATION,
    POSITION,
    SCALE,
    ClippedSettings,
    GuidedSettings,
    MethodSettings,
    Normalisation,
)
from r3l.config.section import identity_of
from r3l.records.plan import GuidancePosition, GuidanceRule, InvalidReflection, RetryFrom


class GRPOSettings(ClippedSettings):
    kind: Literal["grpo"] = "grpo"


class RAFTSettings(MethodSettings):
    kind: Literal["raft"] = "raft"
    loss_normalisation: Normalisation = Field("token", description=NORMALISATION)


class OPMDSettings(MethodSettings):
    kind: Literal["opmd"] = "opmd"
    scale: Literal["std", "none"] = Field("none", description=SCALE)
    tau: float = Field(1.0, ge=0, le=1000, description="The loss is divided by 1 + tau, 0 to 1000.")


class GSPOSettings(ClippedSettings):
    kind: Literal["gspo"] = "gspo"
    clip_low: float = Field(
        0.0003,
        gt=0,
        lt=1,
        description=(
            "Lower clip range, above 0, below 1. The ratio of a whole sequence is clipped at 1 minus this value."
        ),
    )
    clip_high: float = Field(
        0.0004,
        gt=0,
        le=1000,
        description="Upper clip range, above 0, up to 1000. The ratio of a whole sequence is clipped at 1 plus this "
        "value.",
    )


class DAPOSettings(ClippedSettings):
    kind: Literal["dapo"] = "dapo"
    kl_coefficient: float = Field(0.0, ge=0, le=10, description=KL)
    clip_high: float = Field(0.28, gt=0, le=1000, description=CLIP_HIGH)
    loss_normalisation: Normalisation = Field("token", description=NORMALISATION)
    dynamic_sampling: bool = Field(
        False, description="Leave groups whose rewards are all equal out of the batch's mean."
    )
    resample_rounds: int = Field(
        0,
        ge=0,
        le=20,
        description=(
            "Number of times that groups which dynamic_sampling leaves out are replaced by as many new tasks, 0 to 20. "
            "The turns and tokens of all tasks count as sampled."
        ),
    )
    overlong_tokens: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description=(
            "Number of reply tokens, up to 10000000, before overlong_limit in which the reward falls linearly by 1. "
            "0: no penalty."
        ),
    )
    overlong_limit: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="Number of reply tokens per trajectory, up to 10000000, from which on the reward is 1 lower.",
    )

    @model_validator(mode="after")
    def refuse_limit_below_its_ramp(self) -> DAPOSettings:
        if self.overlong_tokens > 0 and self.overlong_limit < self.overlong_tokens:
            raise ValueError(
                f"overlong_limit={self.overlong_limit} is below overlong_tokens={self.overlong_tokens}: the penalty "
                "rises over the last overlong_tokens before overlong_limit. Give the limit in reply tokens per "
                "trajectory"
            )
        return self


class BAPOSettings(ClippedSettings):
    kind: Literal["bapo"] = "bapo"
    kl_coefficient: float = Field(0.0, ge=0, le=10, description=KL)
    clip_low: float = Field(0.4, gt=0, lt=1, description=f"{CLIP_LOW} The search begins here.")
    clip_high: float = Field(0.2, gt=0, le=1000, description=f"{CLIP_HIGH} The search begins here.")
    loss_normalisation: Normalisation = Field("token", description=NORMALISATION)
    positive_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description=(
            "Share of the loss's mass that rows of positive advantage are to hold, 0 to 1. The clip bounds move "
            "until they do."
        ),
    )
    clip_low_least: float = Field(0.2, gt=0, lt=1, description="Smallest value of clip_low, above 0, below 1.")
    clip_low_step: float = Field(0.05, gt=0, le=1, description="Step by which clip_low falls, above 0, up to 1.")
    clip_high_most: float = Field(1.0, gt=0, le=1000, description="Largest value of clip_high, above 0, up to 1000.")
    clip_high_step: float = Field(
        0.05, gt=0, le=1000, description="Step by which clip_high rises, above 0, up to 1000."
    )

    @model_validator(mode="after")
    def refuse_bounds_that_do_not_move(self) -> BAPOSettings:
        if self.clip_low_least > self.clip_low or self.clip_high_most < self.clip_high:
            raise ValueError(
                f"clip_low falls from {self.clip_low:g} to clip_low_least={self.clip_low_least:g} and clip_high rises "
                f"from {self.clip_high:g} to clip_high_most={self.clip_high_most:g}: lower clip_low_least, or raise "
                "clip_high_most"
            )
        return self


class ReflectGRPOSettings(ClippedSettings, GuidedSettings):
    kind: Literal["reflect_grpo"] = "reflect_grpo"
    retry_from: RetryFrom = Field(
        "start",
        description="Where a retry begins. start: at the first turn; pivot: at the turn that the reflection names.",
    )
    retry_when: Literal["not_success", "always"] = Field(
        "always",
        description=(
            "Which base trajectories are retried, of those whose reflection names a pivot. always: all; not_success: "
            "all, unless the reflection calls the outcome a success."
        ),
    )
    invalid_reflection: InvalidReflection = Field("skip", description=INVALID)
    guidance_position: GuidancePosition = Field("mid_system", description=POSITION)
    train_reflections: bool = Field(
        False,
        description=(
            "Sample N bases rather than N/2, and train each reflection with the advantage of the retry that it guided, "
            "as a part of it (the paper's table of structures)."
        ),
        json_schema_extra=identity_of("credit", "training_rows", later=True),
    )


class CritiqueGRPOSettings(ClippedSettings):
    kind: Literal["critique_grpo"] = "critique_grpo"
    gamma: float = Field(
        0.1, gt=0, le=1000, description="Constant of the shaping function f(p) = p / (p + gamma), above 0, up to 1000."
    )


class NGRPOSettings(ClippedSettings):
    kind: Literal["ngrpo"] = "ngrpo"
    clip_low: float = Field(0.16, gt=0, lt=1, description=CLIP_LOW)
    clip_high: float = Field(0.24, gt=0, le=1000, description=CLIP_HIGH)
    highest_reward: float = Field(
        1.0, ge=-100, le=100, description="Reward of the virtual member of each group, -100 to 100."
    )


class ReflectRetryRewardSettings(ClippedSettings):
    kind: Literal["reflect_retry_reward"] = "reflect_retry_reward"
    invalid_reflection: InvalidReflection = Field("zero", description=INVALID)
    guidance_position: GuidancePosition = Field("mid_system", description=POSITION)


class ERLSettings(ReflectRetryRewardSettings):
    kind: Literal["erl"] = "erl"  # type: ignore[assignment]
    kl_coefficient: float = Field(0.001, ge=0, le=10, description=KL)
    memory_iterations: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description=(
            "Number of earlier iterations, up to 1000000, in which the last guidance is looked for after which a retry "
            "of the same task solved it: the reflector is shown it. 0: none. With 1000000 it is the authors' memory."
        ),
        json_schema_extra=identity_of(),  # what is shown is in the identity of the stage that shows it
    )


class GiGPOSettings(ClippedSettings):
    kind: Literal["gigpo"] = "gigpo"
    step_weight: float = Field(
        1.0,
        ge=0,
        le=1000,
        description="Weight of a turn's own advantage beside that of its trajectory, 0 to 1000. 0: GRPO.",
    )
    discount: float = Field(
        0.95, gt=0, le=1, description="Discount factor per turn in the return of a turn, above 0, up to 1."
    )


class HGPOSettings(ClippedSettings):
    kind: Literal["hgpo"] = "hgpo"
    history: int = Field(
        2, ge=0, le=100, description="Number of earlier observations by which turns are compared, at most, 0 to 100."
    )
    weight_power: float = Field(
        1.0,
        ge=0,
        le=100,
        description="Power of a comparison's weight, 0 to 100: that by the last k observations weighs (k + 1)^power.",
    )
    discount: float = Field(
        0.95, gt=0, le=1, description="Discount factor per turn in the return of a turn, above 0, up to 1."
    )


class ProcessSupervisionSettings(ClippedSettings):
    kind: Literal["process_supervision"] = "process_supervision"
    discount: float = Field(
        1.0,
        ge=0,
        le=1,
        description=(
            "Discount factor per turn of later rewards in a turn's advantage, 0 to 1. 0: only the turn's own reward."
        ),
    )


class VinePPOSettings(ClippedSettings):
    kind: Literal["vineppo"] = "vineppo"
    scale: Literal["std", "none"] = Field(
        "none",
        description=(
            "What differences of values are divided by. std: the standard deviation of the group's rewards + 1e-6; "
            "none."
        ),
    )
    kl_coefficient: float = Field(0.0001, ge=0, le=10, description=KL)
    continuations: int = Field(
        3, ge=1, le=64, description="Number of episodes that are played from each sampled turn, 1 to 64 (paper: 9)."
    )
    turns_sampled: int = Field(
        3,
        ge=1,
        le=256,
        description=(
            "Largest number of turns per trajectory, besides the first, whose value is sampled, 1 to 256. They are "
            "spread evenly; the turns from one of them up to the next share an advantage."
        ),
    )


class RLOOSettings(MethodSettings):
    kind: Literal["rloo"] = "rloo"
    scale: Literal["std", "none"] = Field("none", description=SCALE)


class HINTSettings(ClippedSettings, GuidedSettings):
    kind: Literal["hint"] = "hint"
    kl_coefficient: float = Field(0.0, ge=0, le=10, description=KL)
    guidance: GuidanceRule = Field("hint", description=GUIDANCE)
    guidance_position: GuidancePosition = Field("mid_system", description=POSITION)


class AgentRLVRSettings(GuidedSettings):
    kind: Literal["agent_rlvr"] = "agent_rlvr"
    guidance: GuidanceRule = Field("oracle", description=GUIDANCE)
    guidance_position: GuidancePosition = Field("mid_system", description=POSITION)

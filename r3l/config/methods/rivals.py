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
from r3l.config.numbers import above, between, number, within
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
    tau: float = number(1.0, within(0, 1000), "The loss is divided by 1 + tau, {}.")


class GSPOSettings(ClippedSettings):
    kind: Literal["gspo"] = "gspo"
    clip_low: float = number(
        0.0003, between(0, 1), "Lower clip range, {}. The ratio of a whole sequence is clipped at 1 minus this value."
    )
    clip_high: float = number(
        0.0004, above(0, 1000), "Upper clip range, {}. The ratio of a whole sequence is clipped at 1 plus this value."
    )


class DAPOSettings(ClippedSettings):
    kind: Literal["dapo"] = "dapo"
    kl_coefficient: float = number(0.0, within(0, 10), KL)
    clip_high: float = number(0.28, above(0, 1000), CLIP_HIGH)
    loss_normalisation: Normalisation = Field("token", description=NORMALISATION)
    dynamic_sampling: bool = Field(
        False, description="Leave groups whose rewards are all equal out of the batch's mean."
    )
    resample_rounds: int = number(
        0,
        within(0, 20),
        "Number of times that groups which dynamic_sampling leaves out are replaced by as many new tasks, {}. The "
        "turns and tokens of all tasks count as sampled.",
    )
    overlong_tokens: int = number(
        0,
        within(0, 10_000_000),
        "Number of reply tokens, up to 10000000, before overlong_limit in which the reward falls linearly by 1. 0: "
        "no penalty.",
    )
    overlong_limit: int = number(
        0,
        within(0, 10_000_000),
        "Number of reply tokens per trajectory, up to 10000000, from which on the reward is 1 lower.",
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
    kl_coefficient: float = number(0.0, within(0, 10), KL)
    clip_low: float = number(0.4, between(0, 1), f"{CLIP_LOW} The search begins here.")
    clip_high: float = number(0.2, above(0, 1000), f"{CLIP_HIGH} The search begins here.")
    loss_normalisation: Normalisation = Field("token", description=NORMALISATION)
    positive_share: float = number(
        0.5,
        within(0, 1),
        "Share of the loss's mass that rows of positive advantage are to hold, {}. The clip bounds move until they do.",
    )
    clip_low_least: float = number(0.2, between(0, 1), "Smallest value of clip_low, {}.")
    clip_low_step: float = number(0.05, above(0, 1), "Step by which clip_low falls, {}.")
    clip_high_most: float = number(1.0, above(0, 1000), "Largest value of clip_high, {}.")
    clip_high_step: float = number(0.05, above(0, 1000), "Step by which clip_high rises, {}.")

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
    gamma: float = number(0.1, above(0, 1000), "Constant of the shaping function f(p) = p / (p + gamma), {}.")


class NGRPOSettings(ClippedSettings):
    kind: Literal["ngrpo"] = "ngrpo"
    clip_low: float = number(0.16, between(0, 1), CLIP_LOW)
    clip_high: float = number(0.24, above(0, 1000), CLIP_HIGH)
    highest_reward: float = number(1.0, within(-100, 100), "Reward of the virtual member of each group, {}.")


class ReflectRetryRewardSettings(ClippedSettings):
    kind: Literal["reflect_retry_reward"] = "reflect_retry_reward"
    invalid_reflection: InvalidReflection = Field("zero", description=INVALID)
    guidance_position: GuidancePosition = Field("mid_system", description=POSITION)


class ERLSettings(ReflectRetryRewardSettings):
    kind: Literal["erl"] = "erl"  # type: ignore[assignment]
    kl_coefficient: float = number(0.001, within(0, 10), KL)
    memory_iterations: int = number(
        0,
        within(0, 1_000_000),
        "Number of earlier iterations, up to 1000000, in which the last guidance is looked for after which a retry "
        "of the same task solved it: the reflector is shown it. 0: none. With 1000000 it is the authors' memory.",
        identity_of(),
    )


class GiGPOSettings(ClippedSettings):
    kind: Literal["gigpo"] = "gigpo"
    step_weight: float = number(
        1.0, within(0, 1000), "Weight of a turn's own advantage beside that of its trajectory, {}. 0: GRPO."
    )
    discount: float = number(0.95, above(0, 1), "Discount factor per turn in the return of a turn, {}.")


class HGPOSettings(ClippedSettings):
    kind: Literal["hgpo"] = "hgpo"
    history: int = number(2, within(0, 100), "Number of earlier observations by which turns are compared, at most, {}.")
    weight_power: float = number(
        1.0, within(0, 100), "Power of a comparison's weight, {}: that by the last k observations weighs (k + 1)^power."
    )
    discount: float = number(0.95, above(0, 1), "Discount factor per turn in the return of a turn, {}.")


class ProcessSupervisionSettings(ClippedSettings):
    kind: Literal["process_supervision"] = "process_supervision"
    discount: float = number(
        1.0,
        within(0, 1),
        "Discount factor per turn of later rewards in a turn's advantage, {}. 0: only the turn's own reward.",
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
    kl_coefficient: float = number(0.0001, within(0, 10), KL)
    continuations: int = number(
        3, within(1, 64), "Number of episodes that are played from each sampled turn, {} (paper: 9)."
    )
    turns_sampled: int = number(
        3,
        within(1, 256),
        "Largest number of turns per trajectory, besides the first, whose value is sampled, {}. They are spread "
        "evenly; the turns from one of them up to the next share an advantage.",
    )


class RLOOSettings(MethodSettings):
    kind: Literal["rloo"] = "rloo"
    scale: Literal["std", "none"] = Field("none", description=SCALE)


class HINTSettings(ClippedSettings, GuidedSettings):
    kind: Literal["hint"] = "hint"
    kl_coefficient: float = number(0.0, within(0, 10), KL)
    guidance: GuidanceRule = Field("hint", description=GUIDANCE)
    guidance_position: GuidancePosition = Field("mid_system", description=POSITION)


class AgentRLVRSettings(GuidedSettings):
    kind: Literal["agent_rlvr"] = "agent_rlvr"
    guidance: GuidanceRule = Field("oracle", description=GUIDANCE)
    guidance_position: GuidancePosition = Field("mid_system", description=POSITION)


RIVALS: tuple[type[MethodSettings], ...] = (
    RAFTSettings,
    GRPOSettings,
    OPMDSettings,
    GSPOSettings,
    DAPOSettings,
    BAPOSettings,
    ReflectGRPOSettings,
    CritiqueGRPOSettings,
    NGRPOSettings,
    ReflectRetryRewardSettings,
    RLOOSettings,
    GiGPOSettings,
    HINTSettings,
    AgentRLVRSettings,
    ProcessSupervisionSettings,
    VinePPOSettings,
    HGPOSettings,
    ERLSettings,
)

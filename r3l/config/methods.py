"""Settings of each method: one member of a union each. data/METHODS.md explains them; presets hold the values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from r3l.config.section import Member, any_of


class MethodSettings(Member):
    """Group-relative credit, shared by all methods."""

    IDENTITY_OF = ("credit", "training_rows")  # what is sampled goes by the plan that the method makes of them

    scale: Literal["std", "none"] = Field("std", description="std: (R - mean) / (std + 1e-6), ddof 1; none: R - mean")
    loss_normalisation: Literal["trajectory", "trajectory_unmasked", "token"] = Field(
        "trajectory",
        description="trajectory: 1/|tau| over all its reply tokens, mean over the group; token: mean over tokens",
    )
    loss_factor: float = Field(1.0, gt=0, description="factor on the RL term, above 0 (preset released: 0.5)")
    kl_coefficient: float = Field(0.0, ge=0, le=10, description="0: no reference policy at all")
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="estimator of the KL penalty")
    kl_estimator_distilled: Literal["k1", "k2", "k3"] = Field(
        "k2",
        description="the same on distilled rows, whose replies were sampled under guidance: k3 grows exponentially there",
    )
    top_rule: Literal["group_max", "success", "none"] = Field("none", description="which trajectories get top_value")
    top_value: float | None = Field(None, description="advantage of the top trajectories; empty: alpha")
    alpha: float = Field(
        3.0, ge=1, le=100, description="amplification of other positive advantages, 1 to 100 (paper: 3)"
    )
    amplify: bool = Field(False, description="positive amplification on or off (paper, Eq. 8)")
    success_threshold: float = Field(1.0, description="reward from which a trajectory counts as solved")

    @model_validator(mode="after")
    def refuse_diluted_top(self) -> MethodSettings:
        if self.amplify and self.scale == "std" and self.top_rule != "none" and self.top_value == 1:
            raise ValueError(
                "scale=std with top_value=1 is refused: with N = 8, binary rewards and one success it leaves positive over "
                "negative advantage mass at 0.40 (paper 1.21, released 1.14), and the lone success gets 1.0 where plain GRPO "
                "gives 2.47. Use top_value=alpha (leave it empty), or scale=none."
            )
        return self


class R3LSettings(MethodSettings):
    kind: Literal["r3l"] = "r3l"
    top_rule: Literal["group_max", "success", "none"] = Field(
        "group_max", description="which trajectories get top_value"
    )
    amplify: bool = Field(True, description="positive amplification on or off (paper, Eq. 8)")
    pivot_mask: Literal["both", "retry_only", "off"] = Field(
        "both", description="weight 0 before the pivot (paper, Eq. 7)"
    )
    reflect: bool = Field(True, description="off: N bases, no reflection, no retry")
    retry_when: Literal["not_success", "reward_below", "always", "never"] = Field(
        "not_success", description="when a retry is run"
    )
    retry_reward_below: float = Field(1.0, description="with reward_below: bases under this reward are retried")
    retry_from: Literal["pivot", "start"] = Field(
        "pivot", description="retries begin at the pivot, or from scratch (released, math)"
    )
    retries_per_base: int = Field(
        1, ge=0, le=16, description="sequential retries, each after a fresh reflection, 0 to 16"
    )
    invalid_reflection: Literal["skip", "clamp", "zero"] = Field(
        "skip", description="no retry, pivot clamped, or pivot 0"
    )
    guidance_position: Literal["system", "mid_system", "user"] = Field(
        "mid_system", description="where the guidance stands (pivot 0: always in the system prompt)"
    )
    diverged: Literal["drop", "restart"] = Field(
        "drop", description="rollback saw other observations: no retry, or pivot 0"
    )
    group_fill: Literal["none", "extra_base"] = Field("none", description="sample a base in place of a retry not run")
    pivot: Literal["reflection", "turn_before", "random", "oracle"] = Field(
        "reflection",
        description="control: retries begin where the reflection says, a turn before, anywhere, or at the oracle's pivot",
    )
    guidance: Literal["own", "shuffled", "none"] = Field(
        "own", description="control: retries are told their own reflection, one on another task, or nothing"
    )
    sft_weight: float = Field(1.0, ge=0, le=100, description="of the meta-task term, 0 to 100")
    sft_rule: Literal["improved", "solved", "none"] = Field(
        "improved", description="improved: R(retry) > R(base); solved: the release's rule; none: no meta-task rows"
    )
    sft_reduction: Literal["group", "tokens", "sum"] = Field(
        "group",
        description="of the meta-task term; group: a row weighs 1/(|y||G|), as an RL row of advantage 1 of its group, mean over "
        "the groups; tokens: mean over all meta-task tokens, however few; sum: plain sum",
    )
    sft_as_rl: bool = Field(False, description="meta-task rows as RL rows of advantage 1 (released)")


class ClippedSettings(MethodSettings):
    """What the methods with an importance ratio share."""

    kl_coefficient: float = Field(0.01, ge=0, le=10, description="0: no reference policy at all (paper: 0.01)")
    clip_low: float = Field(0.2, gt=0, lt=1, description="ratio clipped below 1 - this")
    clip_high: float = Field(0.2, gt=0, description="ratio clipped above 1 + this")


class GRPOSettings(ClippedSettings):
    kind: Literal["grpo"] = "grpo"


class RAFTSettings(MethodSettings):
    kind: Literal["raft"] = "raft"
    loss_normalisation: Literal["trajectory", "trajectory_unmasked", "token"] = Field("token", description="as in GRPO")


class OPMDSettings(MethodSettings):
    kind: Literal["opmd"] = "opmd"
    scale: Literal["std", "none"] = Field("none", description="none: R - mean")
    tau: float = Field(1.0, ge=0, description="the loss is divided by 1 + tau")


class GSPOSettings(ClippedSettings):
    kind: Literal["gspo"] = "gspo"
    clip_low: float = Field(0.0003, gt=0, lt=1, description="sequence ratio clipped below 1 - this")
    clip_high: float = Field(0.0004, gt=0, description="sequence ratio clipped above 1 + this")


class DAPOSettings(ClippedSettings):
    kind: Literal["dapo"] = "dapo"
    kl_coefficient: float = Field(0.0, ge=0, le=10, description="0: no reference policy at all")
    clip_high: float = Field(0.28, gt=0, description="ratio clipped above 1 + this")
    loss_normalisation: Literal["trajectory", "trajectory_unmasked", "token"] = Field(
        "token", description="token: mean over all tokens"
    )
    dynamic_sampling: bool = Field(False, description="groups of equal rewards leave the batch's mean")
    overlong_tokens: int = Field(
        0, ge=0, description="0: off; else soft punishment over so many tokens before overlong_limit"
    )
    overlong_limit: int = Field(0, ge=0, description="reply tokens of a trajectory from which the reward is 1 lower")

    @model_validator(mode="after")
    def refuse_limit_below_its_ramp(self) -> DAPOSettings:
        if self.overlong_tokens > 0 and self.overlong_limit < self.overlong_tokens:
            raise ValueError(
                f"overlong_limit={self.overlong_limit} is below overlong_tokens={self.overlong_tokens}: the punishment "
                "rises over the last overlong_tokens before overlong_limit, so give the limit in reply tokens of a trajectory"
            )
        return self


class ReflectGRPOSettings(ClippedSettings):
    kind: Literal["reflect_grpo"] = "reflect_grpo"
    retry_from: Literal["start", "pivot"] = Field(
        "start", description="retries begin at the start, or at the pivot of the reflection"
    )
    retry_when: Literal["not_success", "always"] = Field(
        "always", description="always: every base with a valid reflection is retried"
    )
    invalid_reflection: Literal["skip", "clamp", "zero"] = Field(
        "skip", description="no retry, pivot clamped, or pivot 0"
    )
    guidance_position: Literal["system", "mid_system", "user"] = Field(
        "mid_system", description="where the guidance stands"
    )


class CritiqueGRPOSettings(ClippedSettings):
    kind: Literal["critique_grpo"] = "critique_grpo"
    gamma: float = Field(0.1, gt=0, description="f(p) = p / (p + gamma)")


class RLOOSettings(MethodSettings):
    kind: Literal["rloo"] = "rloo"
    scale: Literal["std", "none"] = Field("none", description="none: R - mean")


AnyMethod = Annotated[
    R3LSettings
    | RAFTSettings
    | GRPOSettings
    | OPMDSettings
    | GSPOSettings
    | DAPOSettings
    | ReflectGRPOSettings
    | CritiqueGRPOSettings
    | RLOOSettings,
    Field(discriminator="kind", json_schema_extra=any_of),
]

"""Settings of each method, one class per method. data/METHODS.md explains them; presets hold the values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from r3l.config.kinds import Kinds
from r3l.config.section import Member

Normalisation = Literal["trajectory", "trajectory_unmasked", "token", "constant"]
SCALE = "How rewards R of a group become advantages. std: (R - mean) / (std + 1e-6), with ddof 1; none: R - mean."
NORMALISATION = (
    "How the loss of a group is averaged. trajectory: over all reply tokens of each trajectory, masked "
    "ones too, then over the group; trajectory_unmasked: the same without the masked tokens; token: mean "
    "over all tokens; constant: loss_tokens in place of the reply tokens of each trajectory, then over the group "
    "(Dr. GRPO)."
)
TOP_RULE = (
    "Which trajectories get top_value as their advantage. group_max: the best of a group; success: those "
    "that solved the task; none: no trajectory."
)
AMPLIFY = "Amplify positive advantages (paper, Eq. 8)."
KL = "Weight of the KL penalty to the starting policy, 0 to 10. 0: no reference policy is loaded."
CLIP_LOW = "The importance ratio is clipped below 1 minus this value, above 0, below 1."
CLIP_HIGH = "The importance ratio is clipped above 1 plus this value, above 0."
INVALID = (
    "What an invalid reflection leads to. skip: no retry; clamp: a retry from the nearest valid pivot; "
    "zero: a retry from turn 0."
)
POSITION = (
    "Where the guidance stands in the context. system: in the system prompt; mid_system: in a system "
    "message at the pivot; user: in a user message at the pivot."
)


class MethodSettings(Member):
    """Group-relative credit, shared by all methods."""

    IDENTITY_OF = ("credit", "training_rows")  # sampling depends on the plan that the method derives from them

    scale: Literal["std", "none"] = Field("std", description=SCALE)
    loss_normalisation: Normalisation = Field("trajectory", description=NORMALISATION)
    loss_tokens: int = Field(
        1024,
        ge=1,
        description="With loss_normalisation=constant, the constant, in reply tokens of a trajectory, 1 or more.",
    )
    loss_factor: float = Field(1.0, gt=0, description="Factor on the RL loss, above 0 (preset released: 0.5).")
    kl_coefficient: float = Field(0.0, ge=0, le=10, description=KL)
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="Estimator of the KL penalty.")
    kl_estimator_distilled: Literal["k1", "k2", "k3"] = Field(
        "k2",
        description=(
            "Estimator of the KL penalty on distilled rows. Their replies were sampled under guidance, where k3 "
            "grows exponentially."
        ),
    )
    top_rule: Literal["group_max", "success", "none"] = Field("none", description=TOP_RULE)
    top_value: float | None = Field(None, description="Advantage of the top trajectories. If empty, alpha.")
    alpha: float = Field(
        3.0, ge=1, le=100, description="Factor on the other positive advantages, 1 to 100 (paper, Eq. 8: 3)."
    )
    amplify: bool = Field(False, description=AMPLIFY)
    success_threshold: float = Field(1.0, description="Smallest reward with which a trajectory counts as solved.")

    @model_validator(mode="after")
    def refuse_diluted_top(self) -> MethodSettings:
        if self.amplify and self.scale == "std" and self.top_rule != "none" and self.top_value == 1:
            raise ValueError(
                "scale=std with top_value=1 is refused: with N = 8, binary rewards and one success, the ratio of positive to "
                "negative advantage mass is 0.40 (paper: 1.21, released: 1.14), and the only success gets advantage 1.0, "
                "where plain GRPO gives 2.47. Leave top_value empty (top_value=alpha), or use scale=none."
            )
        return self


class R3LSettings(MethodSettings):
    kind: Literal["r3l"] = "r3l"
    top_rule: Literal["group_max", "success", "none"] = Field("group_max", description=TOP_RULE)
    amplify: bool = Field(True, description=AMPLIFY)
    pivot_mask: Literal["both", "retry_only", "off"] = Field(
        "both",
        description=(
            "Which trajectories have weight 0 before the pivot (paper, Eq. 7). both: the base and its retry; "
            "retry_only: the retry; off: none."
        ),
    )
    reflect: bool = Field(
        True,
        description="Reflect on base trajectories and retry them. If off, N base trajectories are sampled per task.",
    )
    retry_when: Literal["not_success", "reward_below", "always", "never"] = Field(
        "not_success",
        description=(
            "Which base trajectories are retried. not_success: those that did not solve the task; reward_below: "
            "those with less than retry_reward_below; always; never."
        ),
    )
    retry_reward_below: float = Field(
        1.0, description="Base trajectories with less than this reward are retried. Only for retry_when reward_below."
    )
    retry_from: Literal["pivot", "start"] = Field(
        "pivot",
        description=(
            "Where a retry begins. pivot: at the pivot turn; start: at the first turn, as the release does for "
            "mathematics."
        ),
    )
    retries_per_base: int = Field(
        1,
        ge=0,
        le=16,
        description=(
            "Number of retries per base trajectory, one after another, each after a reflection of its own, 0 to 16."
        ),
    )
    invalid_reflection: Literal["skip", "clamp", "zero"] = Field("skip", description=INVALID)
    guidance_position: Literal["system", "mid_system", "user"] = Field(
        "mid_system",
        description=(
            "Where the guidance stands in the context. system: in the system prompt; mid_system: in a system "
            "message at the pivot; user: in a user message at the pivot. With pivot 0 it is always in the system "
            "prompt."
        ),
    )
    diverged: Literal["drop", "restart"] = Field(
        "drop",
        description=(
            "What happens if the observations after a rollback differ from the recorded ones. drop: no retry; "
            "restart: a retry from turn 0."
        ),
    )
    group_fill: Literal["none", "extra_base"] = Field(
        "none",
        description="What replaces a retry that was not run. none: nothing; extra_base: a further base trajectory.",
    )
    pivot: Literal["reflection", "turn_before", "random", "oracle"] = Field(
        "reflection",
        description=(
            "Control experiment: where retries begin. reflection: at the turn that the reflection names; "
            "turn_before: one turn earlier; random: at a random turn; oracle: at the environment's true pivot."
        ),
    )
    guidance: Literal["own", "shuffled", "none"] = Field(
        "own",
        description=(
            "Control experiment: what retries are told. own: their own reflection; shuffled: a reflection on "
            "another task; none: nothing."
        ),
    )
    sft_weight: float = Field(1.0, ge=0, le=100, description="Weight of the meta-task loss, 0 to 100.")
    sft_rule: Literal["improved", "solved", "none"] = Field(
        "improved",
        description=(
            "Which reflections and retries become meta-task rows. improved: those whose retry has a higher reward "
            "than its base; solved: the rule of the release; none: no rows."
        ),
    )
    sft_reduction: Literal["group", "tokens", "sum"] = Field(
        "group",
        description=(
            "How the meta-task loss is averaged. group: a row weighs 1/(|y||G|), as an RL row of advantage 1 in "
            "its group, then the mean over the groups; tokens: the mean over all meta-task tokens, however few; "
            "sum: the plain sum."
        ),
    )
    sft_as_rl: bool = Field(
        False, description="Train meta-task rows with the RL loss and advantage 1, as the release does."
    )


class ClippedSettings(MethodSettings):
    """Settings that all methods with an importance ratio share."""

    kl_coefficient: float = Field(
        0.01,
        ge=0,
        le=10,
        description=(
            "Weight of the KL penalty to the starting policy, 0 to 10 (paper: 0.01). 0: no reference policy is loaded."
        ),
    )
    clip_low: float = Field(0.2, gt=0, lt=1, description=CLIP_LOW)
    clip_high: float = Field(0.2, gt=0, description=CLIP_HIGH)


class GRPOSettings(ClippedSettings):
    kind: Literal["grpo"] = "grpo"


class RAFTSettings(MethodSettings):
    kind: Literal["raft"] = "raft"
    loss_normalisation: Normalisation = Field("token", description=NORMALISATION)


class OPMDSettings(MethodSettings):
    kind: Literal["opmd"] = "opmd"
    scale: Literal["std", "none"] = Field("none", description=SCALE)
    tau: float = Field(1.0, ge=0, description="The loss is divided by 1 + tau, 0 or more.")


class GSPOSettings(ClippedSettings):
    kind: Literal["gspo"] = "gspo"
    clip_low: float = Field(
        0.0003,
        gt=0,
        lt=1,
        description="The ratio of a whole sequence is clipped below 1 minus this value, above 0, below 1.",
    )
    clip_high: float = Field(
        0.0004, gt=0, description="The ratio of a whole sequence is clipped above 1 plus this value, above 0."
    )


class DAPOSettings(ClippedSettings):
    kind: Literal["dapo"] = "dapo"
    kl_coefficient: float = Field(0.0, ge=0, le=10, description=KL)
    clip_high: float = Field(0.28, gt=0, description=CLIP_HIGH)
    loss_normalisation: Normalisation = Field("token", description=NORMALISATION)
    dynamic_sampling: bool = Field(
        False, description="Leave groups whose rewards are all equal out of the batch's mean."
    )
    overlong_tokens: int = Field(
        0,
        ge=0,
        description=(
            "Number of reply tokens before overlong_limit over which the reward falls by up to 1. 0: no such penalty."
        ),
    )
    overlong_limit: int = Field(
        0, ge=0, description="Number of reply tokens per trajectory from which the reward is 1 lower."
    )

    @model_validator(mode="after")
    def refuse_limit_below_its_ramp(self) -> DAPOSettings:
        if self.overlong_tokens > 0 and self.overlong_limit < self.overlong_tokens:
            raise ValueError(
                f"overlong_limit={self.overlong_limit} is below overlong_tokens={self.overlong_tokens}: the penalty rises "
                "over the last overlong_tokens before overlong_limit. Give the limit in reply tokens per trajectory"
            )
        return self


class ReflectGRPOSettings(ClippedSettings):
    kind: Literal["reflect_grpo"] = "reflect_grpo"
    retry_from: Literal["start", "pivot"] = Field(
        "start",
        description="Where a retry begins. start: at the first turn; pivot: at the turn that the reflection names.",
    )
    retry_when: Literal["not_success", "always"] = Field(
        "always",
        description=(
            "Which base trajectories are retried. always: each one with a valid reflection; not_success: those "
            "that did not solve the task."
        ),
    )
    invalid_reflection: Literal["skip", "clamp", "zero"] = Field("skip", description=INVALID)
    guidance_position: Literal["system", "mid_system", "user"] = Field(
        "mid_system",
        description=POSITION,
    )


class CritiqueGRPOSettings(ClippedSettings):
    kind: Literal["critique_grpo"] = "critique_grpo"
    gamma: float = Field(0.1, gt=0, description="Constant of the shaping function f(p) = p / (p + gamma), above 0.")


class NGRPOSettings(ClippedSettings):
    kind: Literal["ngrpo"] = "ngrpo"
    clip_low: float = Field(0.16, gt=0, lt=1, description=CLIP_LOW)
    clip_high: float = Field(0.24, gt=0, description=CLIP_HIGH)
    highest_reward: float = Field(1.0, description="Reward of the virtual member of each group.")


class ReflectRetryRewardSettings(ClippedSettings):
    kind: Literal["reflect_retry_reward"] = "reflect_retry_reward"
    invalid_reflection: Literal["skip", "clamp", "zero"] = Field("zero", description=INVALID)
    guidance_position: Literal["system", "mid_system", "user"] = Field("mid_system", description=POSITION)


class RLOOSettings(MethodSettings):
    kind: Literal["rloo"] = "rloo"
    scale: Literal["std", "none"] = Field("none", description=SCALE)


METHOD_KINDS = Kinds(
    "method",
    MethodSettings,
    (
        R3LSettings,
        RAFTSettings,
        GRPOSettings,
        OPMDSettings,
        GSPOSettings,
        DAPOSettings,
        ReflectGRPOSettings,
        CritiqueGRPOSettings,
        NGRPOSettings,
        ReflectRetryRewardSettings,
        RLOOSettings,
    ),
)
AnyMethod = Annotated[MethodSettings, METHOD_KINDS]

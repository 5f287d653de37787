"""What the settings of all methods share, and of those with an importance ratio; the descriptions that several
repeat."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from r3l.config.numbers import above, between, number, within
from r3l.config.section import Member, identity_of
from r3l.records.plan import GuidanceRule

Normalisation = Literal["trajectory", "trajectory_unmasked", "token", "constant"]
SCALE = "How rewards R of a group become advantages. std: (R - mean) / (std + 1e-6), with ddof 1; none: R - mean."
NORMALISATION = (
    "How the loss of a group is averaged. trajectory: over all reply tokens of each trajectory, masked ones too, then "
    "over the group; trajectory_unmasked: the same without the masked tokens; token: mean over all tokens; constant: "
    "loss_tokens in place of the reply tokens of each trajectory, then over the group (Dr. GRPO)."
)
TOP_RULE = (
    "Which trajectories get top_value as their advantage. group_max: the best of a group; success: those that solved "
    "the task; none: no trajectory."
)
AMPLIFY = "Amplify positive advantages: the top ones to top_value, the others by alpha (paper, Eq. 8)."
KL = "Weight of the KL penalty to the starting policy, {}. 0: no reference policy is loaded."
CLIP_LOW = "Lower clip range, {}. The importance ratio is clipped at 1 minus this value."
CLIP_HIGH = "Upper clip range, {}. The importance ratio is clipped at 1 plus this value."
INVALID = (
    "What an invalid reflection leads to. skip: no retry; clamp: a retry from the nearest valid pivot; zero: a retry "
    "from turn 0."
)
POSITION = (
    "Where the guidance stands in the context. system: in the system prompt; mid_system: in a system message at the "
    "pivot; user: in a user message at the pivot."
)
GUIDANCE = (
    "What retries are told. own: their own reflection, which the policy writes; oracle: the turn and the cause that "
    "the environment's oracle names; hint: a hint of the task; teacher: a reflection that another model writes. "
    "Control experiments: shuffled: the policy's reflection on another task; none: nothing."
)


class MethodSettings(Member):
    """Group-relative credit, shared by all methods."""

    IDENTITY_OF = ("credit", "training_rows")  # sampling depends on the plan that the method derives from them

    scale: Literal["std", "none"] = Field("std", description=SCALE)
    loss_normalisation: Normalisation = Field("trajectory", description=NORMALISATION)
    loss_tokens: int = number(
        1024,
        within(1, 10_000_000),
        "Number of reply tokens that divides a trajectory's loss if loss_normalisation is constant, {}.",
    )
    loss_factor: float = number(1.0, above(0, 1000), "Factor on the RL loss, {} (preset released: 0.5).")
    kl_coefficient: float = number(0.0, within(0, 10), KL)
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="Estimator of the KL penalty.")
    kl_estimator_distilled: Literal["k1", "k2", "k3"] = Field(
        "k2",
        description=(
            "Estimator of the KL penalty on distilled rows. Their replies were sampled under guidance, where k3 "
            "grows exponentially."
        ),
    )
    top_rule: Literal["group_max", "success", "none"] = Field("none", description=TOP_RULE)
    top_value: float | None = number(None, within(-100, 100), "Advantage of the top trajectories, {}. If empty, alpha.")
    alpha: float = number(3.0, within(1, 100), "Factor on positive advantages below the top, {} (paper, Eq. 8: 3).")
    amplify: bool = Field(False, description=AMPLIFY)
    success_threshold: float = number(
        1.0, within(-100, 100), "Smallest reward with which a trajectory counts as solved, {}."
    )
    off_policy_delta: float = number(
        0.0,
        within(0, 1000),
        "Threshold of the off-policy mask in nats per token, {} (DeepSeek-V3.2). A row of negative advantage is "
        "masked if the mean log-probability of its trained tokens is lower by more than this than when they were "
        "sampled, under guidance or not. 0: no mask.",
    )

    sampler_ratio: Literal["auto", "none", "truncate", "mask", "sequence_mask"] = Field(
        "auto",
        description=(
            "Weight of a token's loss by the ratio of its probability in the trainer to that in the engine that "
            "sampled it. none: no weight; truncate: the ratio, sampler_high at most (TIS); mask: the ratio, 0 outside "
            "sampler_low to sampler_high (IcePop); sequence_mask: the product of the row's ratios, 0 above "
            "sampler_high (TRL). auto: none where the engine computes what the trainer does, else truncate, as with "
            "training.overlap."
        ),
        json_schema_extra=identity_of("training_rows", later=True),
    )
    sampler_low: float = number(
        0.5,
        within(0, 1),
        "Lower bound of the ratio of trainer to engine, {}, if sampler_ratio is mask.",
        identity_of("training_rows", later=True),
    )
    sampler_high: float = number(
        2.0,
        within(1, 1000),
        "Upper bound of the ratio of trainer to engine, {} (TIS: 2, TRL: 3, IcePop: 5).",
        identity_of("training_rows", later=True),
    )
    outcome_gate: bool = Field(
        False,
        description=(
            "Give no advantage in a group in which no attempt solved its task, however its shaped rewards differ "
            "(verl-recipe #125): they are taken off whole."
        ),
        json_schema_extra=identity_of("credit", "training_rows", later=True),
    )

    @model_validator(mode="after")
    def refuse_diluted_top(self) -> MethodSettings:
        if self.amplify and self.scale == "std" and self.top_rule != "none" and self.top_value == 1:
            raise ValueError(
                "scale=std with top_value=1 is refused: with N = 8, binary rewards and one success, the ratio of "
                "positive to negative advantage mass is 0.40 (paper: 1.21, released: 1.14), and the only success gets "
                "advantage 1.0, where plain GRPO gives 2.47. Leave top_value empty (top_value=alpha), or use "
                "scale=none."
            )
        return self


class ClippedSettings(MethodSettings):
    """Settings that all methods with an importance ratio share."""

    kl_coefficient: float = number(
        0.01,
        within(0, 10),
        "Weight of the KL penalty to the starting policy, {} (paper: 0.01). 0: no reference policy is loaded.",
    )
    clip_low: float = number(0.2, between(0, 1), CLIP_LOW)
    clip_high: float = number(0.2, above(0, 1000), CLIP_HIGH)


class GuidedSettings(MethodSettings):
    """Settings of methods whose retries are told something: by whom, and which hint comes first."""

    guidance: GuidanceRule = Field("own", description=GUIDANCE)
    teacher: str = Field(
        "",
        description=(
            "For guidance=teacher: the folder of another policy, start for the policy that the run started from, which "
            "forgets nothing, or the address of a server with OpenAI's chat route (its key is read from "
            "R3L_TEACHER_KEY)."
        ),
        json_schema_extra=identity_of(),  # what it is belongs to the reflections by its digest
    )
    teacher_every: int = number(
        0,
        within(0, 1000),
        "For teacher=start: number of iterations after which the run's own policy of then teaches, {}. 0: the start "
        "teaches throughout.",
        identity_of(),
    )
    teacher_model: str = Field(
        "", description="Name of the teacher's model on that server.", json_schema_extra=identity_of()
    )
    hint_level: int = number(
        0,
        within(0, 9),
        "Level of the first hint if guidance is hint, {}. 0 is the vaguest. Each further retry of the same base gets "
        "a hint that is one level more precise.",
    )

    @model_validator(mode="after")
    def refuse_no_teacher(self) -> GuidedSettings:
        if self.guidance == "teacher" and not self.teacher:
            raise ValueError("guidance=teacher needs method.teacher: a policy's folder, start, or a server's address")
        if self.teacher.startswith(("http://", "https://")) and not self.teacher_model:
            raise ValueError(f"teacher={self.teacher} is a server: name its model with method.teacher_model")
        if self.teacher_every and (self.guidance, self.teacher) != ("teacher", "start"):
            raise ValueError(f"teacher_every={self.teacher_every} goes with guidance=teacher and teacher=start alone")
        return self

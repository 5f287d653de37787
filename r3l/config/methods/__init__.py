"""The settings of R3L, and the kinds of methods. data/METHODS.md explains them; presets hold the values."""

from typing import Annotated, Literal

from pydantic import Field

from r3l.config.kinds import Kinds
from r3l.config.methods.rivals import RIVALS
from r3l.config.methods.shared import AMPLIFY, CLIP_HIGH, CLIP_LOW, INVALID, TOP_RULE, GuidedSettings, MethodSettings
from r3l.config.methods.taught import RLSDSettings, RLTFSDSettings, SDPOSettings
from r3l.config.numbers import above, between, number, within
from r3l.config.section import identity_of
from r3l.records.plan import Diverged, GroupFill, GuidancePosition, InvalidReflection, PivotRule, RetryFrom, RetryWhen


class R3LSettings(GuidedSettings):
    kind: Literal["r3l"] = "r3l"
    top_rule: Literal["group_max", "success", "none"] = Field("group_max", description=TOP_RULE)
    amplify: bool = Field(True, description=AMPLIFY)
    amplify_distilled: bool = Field(
        True,
        description=(
            "Amplify distilled trajectories, too. If off, their positive advantages stay as they are: their suffixes "
            "were sampled under guidance, which is off-policy."
        ),
    )
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
    retry_when: RetryWhen = Field(
        "not_success",
        description=(
            "Which base trajectories are retried, of those whose reflection names a pivot. not_success: all, unless "
            "the reflection calls the outcome a success; reward_below: those with a reward below retry_reward_below; "
            "group_failed: all of a group in which no reward reaches it; always: all; never: none."
        ),
    )
    retry_reward_below: float = number(
        1.0, within(-100, 100), "Threshold of the reward, {}, if retry_when is reward_below or group_failed."
    )
    retry_from: RetryFrom = Field(
        "pivot",
        description=(
            "Where a retry begins. pivot: at the pivot turn; start: at the first turn, as the release does for "
            "mathematics."
        ),
    )
    retries_per_base: int = number(
        1,
        within(0, 16),
        "Number of retries per base trajectory, one after another, each after a reflection of its own, {}.",
    )
    invalid_reflection: InvalidReflection = Field("skip", description=INVALID)
    guidance_position: GuidancePosition = Field(
        "mid_system",
        description=(
            "Where the guidance stands in the context. system: in the system prompt; mid_system: in a system message "
            "at the pivot; user: in a user message at the pivot. With pivot 0 it is always in the system prompt."
        ),
    )
    diverged: Diverged = Field(
        "drop",
        description=(
            "What happens if the observations after a rollback differ from the recorded ones. drop: no retry; "
            "restart: a retry from turn 0."
        ),
    )
    group_fill: GroupFill = Field(
        "none",
        description="What replaces a retry that was not run. none: nothing; extra_base: a further base trajectory.",
    )
    pivot: PivotRule = Field(
        "reflection",
        description=(
            "Control experiment: where retries begin. reflection: at the turn that the guidance names; "
            "turn_before: one turn earlier; random: at a random turn; oracle: at the environment's true pivot."
        ),
    )
    sft_weight: float = number(
        1.0, within(0, 100), "Weight of the meta-task loss (SFT on reflections and retries), {}."
    )
    sft_rule: Literal["improved", "solved", "none"] = Field(
        "improved",
        description=(
            "Which reflections and retries become meta-task rows. improved: those whose retry has a higher reward "
            "than its base; solved: those whose retry solves the task and is better or shorter than its base, and "
            "reports that rightly say success, as the release does; none: no rows."
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
    sft_guidance: Literal["own", "any"] = Field(
        "own",
        description=(
            "Whose guidance gives meta-task rows. own: the policy's own reflections, and retries under them; any: also "
            "retries under the oracle's words, a hint or a teacher's reflection, and the teacher's reflections if the "
            "teacher has the policy's tokenizer."
        ),
    )
    loss_ratio: Literal["none", "clip", "cispo"] = Field(
        "none",
        description=(
            "Importance ratio of the RL loss to the policy before the update's first step; with one step it is 1. "
            "none: no ratio (paper); clip: PPO's clipped ratio, as in GRPO; cispo: the loss is weighted with the "
            "clipped ratio, which has no gradient."
        ),
    )
    clip_low: float = number(0.2, between(0, 1), CLIP_LOW)
    clip_high: float = number(0.2, above(0, 1000), CLIP_HIGH)
    sft_as_rl: bool = Field(
        False, description="Train meta-task rows with the RL loss and advantage 1, as the release does."
    )
    meta_objective: Literal["sft", "gain", "rl"] = Field(
        "sft",
        description=(
            "How much a reflection weighs as a meta-task row. The gain is the reward of its retry minus that of what "
            "it corrects. sft: 1 where its retry is learned (paper); gain: meta_gain_weight times the gain, "
            "meta_valid_weight for a report whose retry gained nothing, meta_invalid_weight for no valid report; rl: "
            "its gain minus the mean gain of the task's reports, no valid report with a gain of meta_invalid_weight "
            "(ERL). Rows of retries are the same with each."
        ),
        json_schema_extra=identity_of("training_rows"),
    )
    meta_gain_weight: float = number(
        3.0,
        above(0, 100),
        "Weight of a reflection per unit of gain if meta_objective is gain, {}.",
        identity_of("training_rows"),
    )
    meta_valid_weight: float = number(
        0.3,
        within(0, 100),
        "Weight of a valid report whose retry gained nothing if meta_objective is gain, {}. Above 0 it keeps the "
        "skill of writing reports while retries fail.",
        identity_of("training_rows"),
    )
    meta_invalid_weight: float = number(
        0.0,
        within(-0.5, 0),
        "Weight of a reflection that is no valid report if meta_objective is gain, and its gain if it is rl, {}. "
        "Below 0 the policy is pushed away from it, which is why it is bounded.",
        identity_of("training_rows"),
    )
    meta_success_weight: float | None = number(
        None,
        within(0, 100),
        "Weight of a report that rightly says success of an attempt that solved its task, after which nothing is "
        "retried, {}. 0: no row. If empty, 1 where sft_rule is solved (as the release does), else 0.",
        identity_of("training_rows"),
    )
    meta_memory: int = number(
        0,
        within(0, 1_000_000),
        "Number of tasks, the newest ones, whose corrections are remembered: meta-task rows of earlier iterations "
        "whose retry was learned, {}. Pruned iterations are passed over. 0: no memory.",
        identity_of("replay"),
    )
    meta_replay: float = number(
        0.25,
        within(0, 0.9),
        "Share of a step's meta-task rows that comes from the memory, {}, if meta_memory is above 0: at most one row "
        "per task, drawn at random. A step with fewer such rows of its own than tasks takes as many from memory as "
        "if it had one for each.",
        identity_of("replay"),
    )


METHOD_KINDS = Kinds("method", MethodSettings, (R3LSettings, *RIVALS, RLTFSDSettings, SDPOSettings, RLSDSettings))
AnyMethod = Annotated[MethodSettings, METHOD_KINDS]

"""The contract of a method: what is sampled, what each member of a group is worth, which loss reads its rows.

A method knows groups and rewards. It knows no environment, no engine and no table; flows and the trainer know none of
it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from r3l.config.methods.shared import ClippedSettings, MethodSettings
from r3l.credit.advantages import Floats, amplify, group_statistics, scaled_advantages, signs
from r3l.credit.turns import PivotMask, base_mask_turn, discounted_returns, distilled_mask_turn, paid_or_at_the_end
from r3l.records import Credit, Episode, Kind, Reflection, SamplingPlan, Trajectory, Turn

S = TypeVar("S", bound=MethodSettings)
C = TypeVar("C", bound=ClippedSettings)
# Rules of members that have no row and count in no mean: left out on purpose, unlike an advantage that is 0.
UNCOUNTED = frozenset({"rejected", "filtered"})
ROWLESS = UNCOUNTED | {"untrained"}  # rules of members that have no row, not even for a KL term


@dataclass(frozen=True, slots=True)
class Objective:
    """Which loss reads a row, and how its rows are summed up: the columns of `TrainingRow` of the same names."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    coefficient: float = 1.0
    role: str = "explore"
    term: str = "rl"


class Lesson(NamedTuple):
    """A meta-task row to make: a reflection, or the retry that it guided (D_reflect and D_retry of the paper)."""

    reflection: Reflection
    retry: Trajectory | None = None  # None: the reflection itself is learned
    kept_turns: int = 0  # turns of the retry's parent that stand before its own
    advantage: float = 1.0


@dataclass(frozen=True, slots=True)
class PlayedGroup:
    """A group for a method that credits turns: G members, of member g the K_g turns that it played, in order; and the
    continuations from turns of its members, those that ended by themselves."""

    members: Sequence[Trajectory]
    credit: Sequence[Credit]
    turns: Sequence[Sequence[Turn]]
    continuations: Sequence[Trajectory] = ()

    def returns(self, discount: float) -> list[Floats]:
        """Compute each turn's discounted return, shape [K_g]: of what turns were paid, else of the reward at the
        end."""
        return [
            discounted_returns(paid_or_at_the_end([turn.reward for turn in turns], one.reward - one.penalty), discount)
            for one, turns in zip(self.credit, self.turns, strict=True)
        ]


class Teacher(NamedTuple):
    """What a member's teacher reads: its row, with `ids` in the place of the context from token `start` to `stop`."""

    start: int
    stop: int
    ids: list[int]


class Memory(NamedTuple):
    """What an update learns again of the corrections of earlier iterations."""

    tasks: int = 0  # the newest corrected tasks that are remembered
    share: float = 0.0  # of the step's meta-task rows


class LeftOut(NamedTuple):
    """What is not trained on, and why."""

    subject_id: str
    reason: str


class Method(Generic[S]):
    """N trajectories, group-relative advantages (amplified by setting), policy gradient. Each method says what
    differs.

    `version` counts the versions of a plug-in's rules: raise it with every change that gives the same trajectories
    other credit or rows.
    """

    version = 1
    taught_only = False  # whether a member without a teacher has no row
    credits_turns = False  # whether `turn_advantages` is asked: then the stage `credit` reads the turns

    def plan(self, settings: S, group_size: int) -> SamplingPlan:
        """Plan what exploration samples for one task, within the budget of `group_size` = N trajectories."""
        return SamplingPlan(bases=group_size)

    def select(self, settings: S, members: Sequence[Trajectory]) -> tuple[list[Trajectory], list[LeftOut]]:
        """Choose which of a group's trainable trajectories are its members."""
        return list(members), []

    def credit(self, settings: S, members: Sequence[Trajectory]) -> list[Credit]:
        """Give one `Credit` per member, in order. `members` are one group: at least one trajectory."""
        # shaped rewards of failures order them by how they failed; the whole reward off, they are all alike
        gated = settings.outcome_gate and not any(member.success for member in members)
        penalties = np.array([member.reward for member in members]) if gated else self.penalties(settings, members)
        rewards = np.array([member.reward for member in members], dtype=np.float64) - penalties
        mean, std = group_statistics(rewards)
        scaled = self.scaled(settings, rewards)
        advantages, rules = self.advantages(settings, rewards, scaled)
        turns = mask_turns(members, self.pivot_mask(settings))
        return [
            Credit(
                trajectory_id=member.trajectory_id,
                group_id=member.group_id,
                iteration=member.iteration,
                task=member.task,
                kind=member.kind,
                reward=member.reward,
                group_size=len(members),
                group_mean=mean,
                group_std=std,
                scaled=float(scaled[index]),
                advantage=float(advantages[index]),
                rule=rules[index],
                mask_turn=turns[index],
                penalty=float(penalties[index]),
            )
            for index, member in enumerate(members)
        ]

    def turn_advantages(self, settings: S, group: PlayedGroup) -> list[Floats]:
        """Give A-hat of each turn in place of its member's, of shape [K_g] for member g. `group.credit` has the
        members' own."""
        return [np.full(len(turns), one.advantage) for one, turns in zip(group.credit, group.turns, strict=True)]

    def penalties(self, settings: S, members: Sequence[Trajectory]) -> Floats:
        """Compute what is taken off each reward before the group's statistics, shape [G]."""
        return np.zeros(len(members))

    def scaled(self, settings: S, rewards_G: Floats) -> Floats:
        """Compute A(tau), each reward against its group, shape [G]."""
        return scaled_advantages(rewards_G, settings.scale)

    def advantages(self, settings: S, rewards_G: Floats, scaled_G: Floats) -> tuple[Floats, list[str]]:
        """Compute A-hat and its rule for each member. A lone member and, unless successes are the top, equal rewards
        get 0."""
        if rewards_G.size == 1:
            return np.zeros(1), ["alone"]
        advantages, rules = scaled_G, signs(scaled_G)
        if settings.amplify:
            advantages, rules = amplify(
                rewards_G,
                scaled_G,
                alpha=settings.alpha,
                top_rule=settings.top_rule,
                success_threshold=settings.success_threshold,
                top_value=settings.alpha if settings.top_value is None else settings.top_value,
            )
        if not scaled_G.any():
            rules = ["top" if rule == "top" else "degenerate" for rule in rules]
        return advantages, rules

    def pivot_mask(self, settings: S) -> PivotMask:
        """Say which members of a base-retry pair are masked before the pivot."""
        return "off"

    def objective(self, settings: S, member: Trajectory) -> Objective:
        """Choose the loss of a member's row."""
        return Objective("policy_gradient", coefficient=settings.loss_factor)

    def teacher(self, settings: S, member: Episode, group: Sequence[Episode]) -> Teacher | None:
        """Say what a teacher would read before a member's replies: the policy itself, which knows more; None: nothing.
        `group`: all attempts at the task, the retries as they ran among them."""
        return None

    def taught(self, settings: S, iteration: int) -> dict[str, Any]:
        """Say how a teacher makes the advantages of the tokens: the arguments of r3l/losses/teacher.py; empty: not at
        all."""
        return {}

    def weighs_actions(self, settings: S) -> bool:
        """Tell whether a teacher makes the advantages of actions' tokens alone, and not of whole replies."""
        return False

    def lessons(
        self, settings: S, attempts: Sequence[Trajectory], reflections: Sequence[Reflection]
    ) -> tuple[list[Lesson], list[LeftOut]]:
        """Choose the meta-task rows of one group. `attempts` are all its trajectories, the retries with their guidance
        among them."""
        return [], [
            LeftOut(one.reflection_id, "this method learns no meta-task" if one.decision == "retry" else one.decision)
            for one in reflections
        ]

    def lesson_objective(self, settings: S) -> Objective:
        """Choose the loss of a meta-task row."""
        return Objective("cross_entropy", term="sft")

    def memory(self, settings: S) -> Memory:
        """Say how many corrections are remembered, and learned again."""
        return Memory()

    def guidance_memory(self, settings: S) -> int:
        """Say in how many iterations back the guidance is looked for after which a retry of the same task won: the
        reflector is shown it."""
        return 0

    def report_objective(self, settings: S) -> Objective:
        """Choose the loss of a reflection's row, where it is another one than that of a retry's."""
        return self.lesson_objective(settings)


class RatioMethod(Method[C]):
    """Methods with an importance ratio, clipped on both sides (PPO)."""

    loss = "clipped_ratio"

    def objective(self, settings: C, member: Trajectory) -> Objective:
        return self.clipped(settings)

    def clipped(self, settings: C) -> Objective:
        """Make the clipped loss, of a member or of a lesson."""
        clip = {"clip_low": settings.clip_low, "clip_high": settings.clip_high}
        return Objective(self.loss, clip, settings.loss_factor)


def mask_turns(members: Sequence[Trajectory], rule: PivotMask) -> list[int]:
    """Find the first turn with weight, for each member. Only what a base shares with a retry that is a member too is
    masked; a retry of a retry shares with the base no more than the shortest prefix on the way."""
    pivots: dict[str, list[int | None]] = {}
    for member in members:
        if member.kind == Kind.DISTILLED and member.base_id is not None:
            pivots.setdefault(member.base_id, []).append(shared_turns(member))
    return [
        distilled_mask_turn(shared_turns(member), rule)
        if member.kind == Kind.DISTILLED
        else base_mask_turn(pivots.get(member.trajectory_id, []), rule)
        for member in members
    ]


def shared_turns(member: Trajectory) -> int | None:
    """Count the leading turns that a distilled trajectory has in common with its base."""
    return member.pivot_turn if member.shared_turns is None else member.shared_turns

"""The rows of the tables, as records. One record, one row; the field names are the column names.

A trajectory's tokens, as array algebra (C = context ids appended before a reply, A = the sampled reply):

    turns        0        1        2
    token_ids  = C0 + A0 + C1 + A1 + C2 + A2
    trained    =      A0      A1      A2          (only sampled ids ever carry weight)

A retry stores its own turns only (turn >= pivot): its ids are the base's turns < pivot followed by its turns, and its
first C holds the guidance. The distilled trajectory stores all turns: base turns < pivot, then the retry's replies
behind contexts without the guidance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Literal


class Kind(StrEnum):
    """What a trajectory is for."""

    BASE = "base"
    RETRY = "retry"
    DISTILLED = "distilled"
    EVALUATION = "evaluation"


class Status(StrEnum):
    """How an attempt ended. `reason` beside it says why, in words."""

    COMPLETED = "completed"  # the environment ended the episode
    TURN_LIMIT = "turn_limit"
    CONTEXT_LIMIT = "context_limit"
    INVALID_REPLY = "invalid_reply"  # only where a bad reply ends the episode
    ENVIRONMENT_ERROR = "environment_error"
    ENGINE_ERROR = "engine_error"
    DIVERGED = "diverged"  # rollback got other observations than the base did
    PARSED = "parsed"  # a reflection that is a valid report
    INVALID = "invalid"  # a reflection that is not
    SKIPPED = "skipped"

    @property
    def trainable(self) -> bool:
        """Whether the attempt is a whole trajectory that may enter an exploration group."""
        return self in {Status.COMPLETED, Status.TURN_LIMIT, Status.CONTEXT_LIMIT, Status.INVALID_REPLY}

    @property
    def failed(self) -> bool:
        """Whether it was not the policy that ended the attempt but an error of the environment or the engine."""
        return self in {Status.ENVIRONMENT_ERROR, Status.ENGINE_ERROR}


Outcome = Literal["success", "success_but_inefficient", "failure"]


@dataclass(frozen=True, slots=True)
class Task:
    """One task of an iteration's batch. `payload` (JSON) is what its environment needs to start it."""

    iteration: int
    task: int  # slot in the batch, 0-based
    task_id: str
    environment: str
    split: str
    task_type: str
    payload: str
    seed: int

    @property
    def group_id(self) -> str:
        return f"iteration={self.iteration}/task={self.task}"


def observation_hash(text: str) -> str:
    """16 hex digits (blake2b-64) by which a rollback's observations are compared with those that were recorded."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Turn:
    """One (observation, reply) pair. token_ids of a trajectory = sum over turns of context_ids + response_ids."""

    trajectory_id: str
    iteration: int
    turn: int  # 0-based
    observation: str
    context_ids: list[int]  # C_k: glue, observation, generation prompt (turn 0: the system prompt too)
    response_ids: list[int]  # A_k: exactly the ids that the engine sampled
    response_logprobs: list[float]  # behaviour log-probabilities of A_k at temperature 1
    response: str
    action: str
    valid: bool  # the reply had the asked-for format
    finish_reason: str
    observation_hash: str


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One attempt at a task, without its turns."""

    trajectory_id: str
    kind: str
    iteration: int
    task: int
    task_id: str
    task_type: str
    group_id: str
    attempt: int  # 0-based among the attempts of its kind in the group
    status: str
    reason: str
    reward: float
    success: bool
    turns: int
    response_tokens: int
    final_observation: str
    policy: str  # digest of the policy snapshot that sampled it
    seed: int
    seconds: float
    base_id: str | None = None  # of a retry or distilled trajectory
    parent_id: str | None = None  # whose leading turns it keeps: the base, or an earlier distilled trajectory of it
    reflection_id: str | None = None
    retry_id: str | None = None  # of a distilled trajectory
    pivot_asked: int | None = None
    pivot_turn: int | None = None  # the pivot used: number of leading turns kept from the parent
    shared_turns: int | None = None  # leading turns truly shared with the base (<= pivot_turn)
    rollback_hashes: list[str] | None = (
        None  # of a retry: `observation_hash` of what the rollback returned before turns 0 ... pivot
    )


@dataclass(frozen=True, slots=True)
class OraclePivot:
    """Where the environment's oracle says that a failed base went wrong: what the pivots of reflections are compared
    with."""

    trajectory_id: str
    iteration: int
    task: int
    group_id: str
    pivot_turn: int | None  # None: the oracle does not know the task, or failed
    why: str


@dataclass(frozen=True, slots=True)
class Reflection:
    """One reflection on one base (or on an earlier retry of it), valid or not."""

    reflection_id: str
    trajectory_id: str  # what it reflects on
    base_id: str
    iteration: int
    task: int
    group_id: str
    attempt: int
    status: str
    reason: str
    text: str
    report: str  # the JSON object that was found, else ""
    outcome: str | None
    pivot_asked: int | None
    pivot_turn: int | None  # after the invalid_reflection rule
    decision: str  # retry, or why not
    context_ids: list[int]
    response_ids: list[int]
    response_logprobs: list[float]
    finish_reason: str
    policy: str
    seed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Credit:
    """What one member of an exploration group is worth."""

    trajectory_id: str
    group_id: str
    iteration: int
    task: int
    kind: str
    reward: float
    group_size: int
    group_mean: float
    group_std: float  # ddof 1
    scaled: float  # the advantage before amplification
    advantage: float  # after it
    rule: str  # top, positive, negative, zero, degenerate, alone; best-of-N: kept, rejected; dynamic sampling: filtered
    mask_turn: int  # turns before it get weight 0
    penalty: float = 0.0  # taken off the reward before the group's statistics


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One sequence for the update job. Loss of a row = sum_t weights[t] * l(logp[t], advantage, ...)."""

    row_id: str
    group_id: str
    iteration: int
    source_id: str  # trajectory or reflection
    role: str  # explore, reflect, retry, refinement, replay
    term: str  # rl or sft: rows of a term share one normaliser
    objective: str  # a key of r3l.losses.LOSSES
    objective_settings: str  # JSON: clip ranges and the like
    reduction: (
        str  # groups: divide by the groups of the batch; tokens: by the term's tokens with weight; sum: by nothing
    )
    coefficient: float  # of the term in the total loss
    kl_coefficient: float
    kl_estimator: str  # none, k1, k2 or k3
    advantage: float
    behaviour_policy: str
    token_ids: list[int]
    weights: list[float]  # >= 0, aligned with token_ids; 0 off the trained reply tokens
    logprobs: list[
        float
    ]  # behaviour log-probabilities, aligned; 0 where not sampled; NaN where sampled behind guidance
    trained_tokens: int


@dataclass(frozen=True, slots=True)
class Event:
    """A drop, a skip, a divergence, a retried engine call: whatever did not go the straight way, and why."""

    iteration: int
    stage: str
    subject_id: str
    event: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a method wants sampled for one task (paper, appendix Algorithm). Exploration reads only this."""

    bases: int
    reflection: Literal["none", "report", "critique"] = "none"
    retries_per_base: int = 0
    retried_bases: int | None = None  # only the first so many bases are reflected on; None: all
    retry_from: Literal["pivot", "start"] = "pivot"
    retry_when: Literal["not_success", "reward_below", "always", "never"] = "never"
    retry_reward_below: float = 1.0
    invalid_reflection: Literal["skip", "clamp", "zero"] = "skip"
    guidance_position: Literal["system", "mid_system", "user"] = "mid_system"
    diverged: Literal["drop", "restart"] = "drop"
    group_fill: Literal["none", "extra_base"] = "none"
    pivot: Literal["reflection", "turn_before", "random", "oracle"] = "reflection"  # controls: where retries begin ...
    guidance: Literal["own", "shuffled", "none"] = "own"  # ... and what they are told


@dataclass(frozen=True, slots=True)
class Episode:
    """A trajectory with its turns, as exploration hands it on."""

    trajectory: Trajectory
    turns: list[Turn]
    events: list[Event] = field(default_factory=list)

"""Attempts at tasks: trajectories, their turns, and what happened on the way."""

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated

from r3l.records.column import Column, Same


class Kind(StrEnum):
    """What a trajectory is for."""

    BASE = "base"
    RETRY = "retry"
    DISTILLED = "distilled"
    CONTINUATION = "continuation"
    EVALUATION = "evaluation"

    @property
    def stage(self) -> str:
        """Name the stage that makes such trajectories."""
        return {
            "base": "base",
            "retry": "retries",
            "distilled": "distilled",
            "continuation": "continuations",
            "evaluation": "evaluations",
        }[self]


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
        """Tell whether the attempt is a whole trajectory that may enter an exploration group."""
        return self in {Status.COMPLETED, Status.TURN_LIMIT, Status.CONTEXT_LIMIT, Status.INVALID_REPLY}

    @property
    def failed(self) -> bool:
        """Tell whether it was not the policy that ended the attempt but an error of the environment or the engine."""
        return self in {Status.ENVIRONMENT_ERROR, Status.ENGINE_ERROR}


@dataclass(frozen=True, slots=True)
class Task:
    """One task of an iteration's batch."""

    iteration: Annotated[int, Column("training iteration, 0-based")]
    task: Annotated[int, Column("slot in the iteration's batch, 0-based")]
    task_id: Annotated[
        str, Column("the task's name in its environment; the same task has the same name in every iteration")
    ]
    environment: Annotated[str, Column("its kind, e.g. alfworld; of a plug-in its name")]
    split: Annotated[str, Column("train, or the name of a test split")]
    task_type: Annotated[str, Column("the environment's own kind of task, for breakdowns")]
    payload: Annotated[str, Column("JSON: what the environment needs to start the task", dropped_with="all")]
    seed: Annotated[int, Column("seed of the attempts at this task in this iteration", bits=64)]

    @property
    def group_id(self) -> str:
        return f"iteration={self.iteration}/task={self.task}"


def observation_hash(text: str) -> str:
    """Hash a text to 16 hex digits (blake2b-64), by which a rollback's observations are compared with those that were
    recorded."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Turn:
    """One (observation, reply) pair. token_ids of a trajectory = sum over turns of context_ids + response_ids."""

    trajectory_id: Annotated[
        str,
        Column(
            "the trajectory it belongs to; a retry or continuation stores only turns >= pivot_turn", names_attempt=True
        ),
    ]
    iteration: Annotated[int, Column("training iteration")]
    turn: Annotated[int, Column("0-based")]
    observation: Annotated[str, Column("what the environment said before the reply", dropped_with="all")]
    context_ids: Annotated[
        list[int],
        Column("token ids appended before the reply: glue, observation, generation prompt", dropped_with="tokens"),
    ]
    response_ids: Annotated[list[int], Column("token ids exactly as the engine sampled them", dropped_with="tokens")]
    response_logprobs: Annotated[
        list[float], Column("their behaviour log-probabilities at temperature 1", dropped_with="logprobs")
    ]
    response: Annotated[str, Column("the reply as text, without the end-of-turn token", dropped_with="all")]
    action: Annotated[str, Column("the action taken from the reply; empty where the reply was not valid")]
    valid: Annotated[bool, Column("the reply had the asked-for format")]
    finish_reason: Annotated[str, Column("stop, length or context")]
    observation_hash: Annotated[str, Column("blake2b-64 of the observation: rollback compares it")]
    progress: Annotated[
        float | None,
        Column(
            "share of the task's sub-goals that stand reached after the action, in [0, 1]; null: a malformed reply, "
            "or an environment that does not tell",
            since=5,
        ),
    ] = None
    reward: Annotated[
        float | None,
        Column(
            "what the action itself was paid, where the environment pays per turn (the trajectory's reward is what it "
            "says in the end); null: it does not, or a malformed reply",
            since=6,
            rare=True,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One attempt at a task, without its turns."""

    trajectory_id: Annotated[
        str,
        Column(
            "e.g. iteration=3/task=17/base=2; the engine's request ids and the log lines begin with it",
            names_attempt=True,
        ),
    ]
    kind: Annotated[str, Column("base, retry, distilled, continuation or evaluation")]
    iteration: Annotated[int, Column("training iteration")]
    task: Annotated[int, Column("slot in the batch")]
    task_id: Annotated[str, Column("the task's name")]
    task_type: Annotated[str, Column("the environment's kind of task")]
    group_id: Annotated[str, Column("exploration group: base and distilled trajectories of one task")]
    attempt: Annotated[
        int, Column("0-based among the attempts of its kind in the group; of a continuation: among those from its turn")
    ]
    status: Annotated[
        str, Column("completed, turn_limit, context_limit, invalid_reply, environment_error, engine_error, diverged")
    ]
    reason: Annotated[str, Column("why it ended so, in words; empty for completed")]
    reward: Annotated[float, Column("R(tau) in [0, 1] (WebShop with preset released: also -0.1)")]
    success: Annotated[bool, Column("the environment's own verdict")]
    turns: Annotated[int, Column("turns played (of a retry or continuation: prefix included)")]
    response_tokens: Annotated[
        int, Column("|tau|: sampled tokens over all turns (of a retry or continuation: its own turns)")
    ]
    final_observation: Annotated[str, Column("what the environment said after the last action", dropped_with="all")]
    policy: Annotated[str, Column("digest of the policy snapshot that sampled it")]
    seed: Annotated[int, Column("seed of its sampling", bits=64)]
    seconds: Annotated[float, Column("wall time of the attempt", volatile=True)]
    base_id: Annotated[str | None, Column("of a retry or distilled trajectory: the base it goes back to")] = None
    parent_id: Annotated[
        str | None,
        Column(
            "whose leading turns it keeps: the base, or an earlier distilled trajectory of that base",
            since=2,
            before=Same("base_id"),
        ),
    ] = None
    reflection_id: Annotated[str | None, Column("the reflection that guided it")] = None
    retry_id: Annotated[str | None, Column("of a distilled trajectory: the retry whose suffix it carries")] = None
    pivot_asked: Annotated[int | None, Column("retry_from_step as the reflection named it")] = None
    pivot_turn: Annotated[int | None, Column("the pivot used: number of leading turns kept from the parent")] = None
    shared_turns: Annotated[
        int | None,
        Column(
            "leading turns truly shared with the base (equal to pivot_turn where the parent is the base)",
            since=2,
            before=Same("pivot_turn"),
        ),
    ] = None
    rollback_hashes: Annotated[
        list[str] | None,
        Column(
            "of a retry: blake2b-64 of each observation that the rollback returned, turns 0 to pivot_turn; where it "
            "diverged, up to that turn; null where it failed, or was stored before it was recorded",
            since=3,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class EvaluatedEpisode:
    """One episode of an evaluation, with the terms on which it was played."""

    trajectory_id: Annotated[str, Column("the evaluation episode (its turns are in turns)", names_attempt=True)]
    iteration: Annotated[int, Column("iteration whose policy was evaluated: -1 is the starting policy")]
    benchmark: Annotated[str, Column("environment and split, e.g. alfworld/heldout")]
    format: Annotated[str, Column("answer format, where the environment has several")]
    protocol: Annotated[str, Column("single, or attempts=3")]
    evaluation: Annotated[
        str | None,
        Column(
            "digest of all that the evaluation was made with but for the policy: policies evaluated on the same terms "
            "have the same",
            since=4,
        ),
    ]
    data: Annotated[
        str | None,
        Column("what tasks and rewards were made from, e.g. kitchen-0, or the catalogue and what finds nouns", since=4),
    ]
    split: Annotated[str | None, Column("the split", since=4)]
    tasks: Annotated[int | None, Column("tasks evaluated", since=4)]
    of_tasks: Annotated[int | None, Column("tasks of the whole split", since=4)]
    repeats: Annotated[int | None, Column("episodes of each task", since=4)]
    seed: Annotated[int | None, Column("seed of the sample of tasks and of the episodes", bits=64, since=4)]
    repeat: Annotated[int, Column("0-based")]
    task_id: Annotated[str, Column("the task")]
    task_type: Annotated[str, Column("its kind")]
    policy: Annotated[str, Column("digest of the snapshot")]
    temperature: Annotated[float, Column("of sampling")]
    status: Annotated[str, Column("as in trajectories; a failed episode counts as reward 0")]
    reward: Annotated[float, Column("R(tau)")]
    success: Annotated[bool, Column("solved")]
    turns: Annotated[int, Column("turns played")]


@dataclass(frozen=True, slots=True)
class Event:
    """A drop, a skip, a divergence, a retried engine call: whatever did not go the straight way, and why."""

    iteration: Annotated[int, Column("training iteration")]
    stage: Annotated[str, Column("the stage that reports it")]
    subject_id: Annotated[str, Column("trajectory, reflection or row")]
    event: Annotated[
        str,
        Column(
            "dropped, skipped, diverged, unstorable, no_gradient, ...; of the machine: engine_retry, engine_restarted, "
            "worker_restarted, canary, sampled_again"
        ),
    ]
    reason: Annotated[str, Column("why, in words")]
    detail: Annotated[str, Column("more, where there is more")] = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """A trajectory with its turns, as exploration hands it on."""

    trajectory: Trajectory
    turns: list[Turn]
    events: list[Event] = field(default_factory=list)

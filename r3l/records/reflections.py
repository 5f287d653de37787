"""Reflections on attempts, and the oracle's pivots that theirs are compared with."""

from dataclasses import dataclass
from typing import Annotated, Literal

from r3l.records.column import Column

Outcome = Literal["success", "success_but_inefficient", "failure"]


@dataclass(frozen=True, slots=True)
class Reflection:
    """One reflection on one base (or on an earlier retry of it), valid or not."""

    reflection_id: Annotated[str, Column("e.g. iteration=3/task=17/base=2/reflection=0", names_attempt=True)]
    trajectory_id: Annotated[str, Column("what it reflects on: the base, or an earlier retry of it")]
    base_id: Annotated[str, Column("the base at the root")]
    iteration: Annotated[int, Column("training iteration")]
    task: Annotated[int, Column("slot in the batch")]
    group_id: Annotated[str, Column("exploration group")]
    attempt: Annotated[int, Column("0-based among the reflections on this base")]
    status: Annotated[str, Column("parsed, invalid, context_limit, engine_error, environment_error or skipped")]
    reason: Annotated[str, Column("what is wrong with it, where it is not parsed")]
    text: Annotated[str, Column("the reply, whole", dropped_with="all")]
    report: Annotated[
        str, Column("the JSON object found in it, unknown keys kept; empty where none", dropped_with="all")
    ]
    outcome: Annotated[str | None, Column("trajectory_outcome: success, success_but_inefficient or failure")]
    pivot_asked: Annotated[
        int | None,
        Column("retry_from_step as it was given; null where it is no integer of 32 bits: reason has it then"),
    ]
    pivot_turn: Annotated[int | None, Column("the pivot after the rule for invalid reflections")]
    decision: Annotated[str, Column("retry, or why no retry was run")]
    context_ids: Annotated[
        list[int], Column("the reflector's prompt; empty where no policy wrote it", dropped_with="tokens")
    ]
    response_ids: Annotated[
        list[int],
        Column(
            "sampled token ids; empty where no policy wrote it, or one with another tokenizer", dropped_with="tokens"
        ),
    ]
    response_logprobs: Annotated[
        list[float], Column("their log-probabilities at temperature 1", dropped_with="logprobs")
    ]
    finish_reason: Annotated[str, Column("stop, length or context")]
    policy: Annotated[
        str, Column("digest of the policy that wrote it, served:NAME of a teacher on a server; empty: no policy did")
    ]
    seed: Annotated[int, Column("seed of its sampling", bits=64)]
    seconds: Annotated[float, Column("wall time", volatile=True)]
    source: Annotated[
        str,
        Column(
            "who wrote it: policy, the one that samples; oracle, the environment's; hint, of the task; teacher",
            since=2,
            before="policy",
        ),
    ] = "policy"
    level: Annotated[int | None, Column("of a hint: 0 the vaguest, and each one more precise", since=2)] = None
    prompt_tokens: Annotated[
        int | None,
        Column("tokens that its writer read, in the writer's own tokenizer; null: its server did not say", since=3),
    ] = None
    response_tokens: Annotated[int | None, Column("tokens that its writer sampled, in the same way", since=3)] = None


@dataclass(frozen=True, slots=True)
class OraclePivot:
    """Where the environment's oracle says that a failed base went wrong: what the pivots of reflections are compared
    with."""

    trajectory_id: Annotated[str, Column("a base that was not won", names_attempt=True)]
    iteration: Annotated[int, Column("training iteration")]
    task: Annotated[int, Column("slot in the batch")]
    group_id: Annotated[str, Column("exploration group")]
    pivot_turn: Annotated[
        int | None, Column("the turn to retry from, by the environment's oracle; null where it has no opinion")
    ]
    why: Annotated[
        str, Column("the oracle's reason, e.g. lost, wasted, slow (household), lost, stalled (ScienceWorld)")
    ]

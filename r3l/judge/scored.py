"""Log-probabilities of some stored replies, computed again by the policy that is said to have sampled them: tokens and
log-probabilities that nobody sampled follow from no other table."""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from r3l.config import Config
from r3l.config.engines import TransformersLocalSettings
from r3l.engines import make_engine
from r3l.engines.base import Engine
from r3l.engines.canary import TOLERANCES
from r3l.errors import R3LError
from r3l.judge import REPLIES
from r3l.judge.bench import Tell
from r3l.judge.lines import Lines, Place
from r3l.methods import plan
from r3l.pipeline import policies
from r3l.pipeline.stages.stage_io import records
from r3l.records import Kind, Reflection, Trajectory, Turn
from r3l.store import manifest as manifests
from r3l.store.layout import StageKey


class Sampled(NamedTuple):
    """A stored reply: its stage and name, what it was sampled behind, its ids and log-probabilities."""

    key: StageKey
    name: str
    prompt: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float]


def replies_scored(
    lines: Lines, place: Place, found: Tell, unscored: Callable[[str], object], count: int = REPLIES
) -> list[float]:
    """Score some replies of an iteration, drawn anew each time. Return the mean difference per token of each."""
    config = lines.config(place.branch, place.iteration)
    replies = list(sampled(lines, place, config)) if config else []
    if config is None or not replies:
        return []
    drawn = random.sample(replies, min(count, len(replies)))
    tolerance = config.engine.canary_tolerance or TOLERANCES[config.policy.dtype]
    try:
        behaviour = policies.find(config, lines.store, place.iteration).behaviour
        engine = make_engine(TransformersLocalSettings(), config.policy)
    except (R3LError, ImportError) as error:
        unscored(f"{place.folder}: {error}")
        return []
    differences = []
    with closing(engine):
        engine.load_policy(behaviour)
        for reply in drawn:
            mean, worst = difference(engine, reply)
            differences.append(mean)
            if not mean <= tolerance:
                found(
                    reply.key,
                    f"{reply.name}: under policy {behaviour.digest} its log-probabilities are others: {mean:.3g} apart "
                    f"per token, tolerance {tolerance:.3g}; {worst}",
                )
    return differences


def difference(engine: Engine, reply: Sampled) -> tuple[float, str]:
    """Return the mean difference per token, and where it is largest, in words."""
    scored = engine.score([*reply.prompt, *reply.ids])[-len(reply.ids) :]
    apart = [abs(one - other) for one, other in zip(reply.logprobs, scored, strict=True)]
    worst = max(range(len(apart)), key=lambda at: math.inf if math.isnan(apart[at]) else apart[at])
    words = f"token {worst} has {reply.logprobs[worst]:.6g}, computed: {scored[worst]:.6g}"
    return math.fsum(apart) / len(apart), words


def sampled(lines: Lines, place: Place, config: Config) -> Iterator[Sampled]:
    """Yield what the policy of an iteration sampled, each behind its prompt: replies of bases and retries, and its own
    reflections."""
    before: dict[str, list[Turn]] = defaultdict(list)  # turns by attempt, of what retries grow from
    for stage in ("base", "retries", "distilled"):
        for manifest in place.of(stage):
            ref = manifests.reference(manifest)
            own: dict[str, list[Turn]] = defaultdict(list)
            for turn in records(lines.store, ref, "turns", Turn):
                own[turn.trajectory_id].append(turn)
            if stage != "retries":
                before |= own
            if stage != "distilled":
                attempts = records(lines.store, ref, "trajectories", Trajectory)
                yield from (
                    reply
                    for one in attempts
                    for reply in replies_of(ref.key, one, own[one.trajectory_id], kept(one, before, config))
                )
    for manifest in place.of("reflections"):
        ref = manifests.reference(manifest)
        for one in records(lines.store, ref, "reflections", Reflection):
            if one.source == "policy" and one.response_ids:
                yield Sampled(ref.key, one.reflection_id, one.context_ids, one.response_ids, one.response_logprobs)


def kept(attempt: Trajectory, before: dict[str, list[Turn]], config: Config) -> list[int] | None:
    """Return the ids that stand before an attempt's own: none of a base, of a retry those that it kept of its parent.
    None where the parent is not at hand."""
    if attempt.kind == Kind.BASE:
        return []
    asked = plan(config.method, config.rollout.group_size)
    if not attempt.pivot_turn or (asked.guidance != "none" and asked.guidance_position == "system"):
        return []
    turns = [turn for turn in before[attempt.parent_id or ""] if turn.turn < attempt.pivot_turn]
    ids = [token for turn in turns for token in (*turn.context_ids, *turn.response_ids)]
    return ids if len(turns) == attempt.pivot_turn else None


def replies_of(key: StageKey, attempt: Trajectory, turns: Sequence[Turn], ids: list[int] | None) -> Iterator[Sampled]:
    for turn in turns if ids is not None else ():
        ids = [*(ids or ()), *turn.context_ids]
        if turn.response_ids:
            name = f"{attempt.trajectory_id}/turn={turn.turn}"
            yield Sampled(key, name, ids, turn.response_ids, turn.response_logprobs)
        ids = [*ids, *turn.response_ids]

"""What a policy does once it is loaded: the update's check of its layers, the canary, a few turns, a reflection."""

from collections.abc import Iterator
from dataclasses import replace

from r3l.config import Config
from r3l.engines.base import Engine, PolicySnapshot
from r3l.engines.canary import TOLERANCES, compare
from r3l.engines.chat_format import ChatFormat
from r3l.environments.kinds import make_world, tasks_of
from r3l.environments.workers.pool import WorldPool
from r3l.exploration.explorer import Explorer
from r3l.exploration.stages import base_stage, reflections_stage
from r3l.methods import plan
from r3l.pipeline.doctor.findings import Finding, note, unasked, works
from r3l.pipeline.workbench import limits
from r3l.records import Status

TURNS = 2
SHOWN = 160  # letters of a reply
PROBE = "The mug is in the sink. Wash it, then put it on the shelf."


def canary(config: Config, snapshot: PolicySnapshot, engine: Engine, chat: ChatFormat) -> Iterator[Finding]:
    """Yield whether the engine and the trainer see the same policy, token by token.

    Raises:
        EngineError: they do not. TrainingError: the trainer can't run this model.
    """
    try:
        from r3l.training.canary import starting_logprobs
    except ImportError:
        yield unasked("canary", "the trainer's torch is not installed here")
        return
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": PROBE}]
    ids = [*chat.opening(messages), *chat.tokenizer.encode(PROBE, add_special_tokens=False), chat.stop_ids[0]]
    logprobs = starting_logprobs(snapshot.path, snapshot.base_path, config.policy, ids)
    yield works("update", "the trainer runs its layers along a trie of shared prefixes")
    tolerance = config.engine.canary_tolerance or TOLERANCES[config.policy.dtype]
    mean_difference = compare(engine, ids, logprobs, tolerance)
    yield works(
        "canary",
        f"engine and trainer differ by {mean_difference:.2g} per token, {tolerance:.2g} allowed, {len(ids)} tokens",
    )


def attempt(config: Config, engine: Engine, chat: ChatFormat, pool: WorldPool, digest: str) -> Iterator[Finding]:
    """Yield the first turns of one task, and a reflection on them, as an iteration samples them."""
    world, task = make_world(config.environment), tasks_of(config.environment, config.environment.split)[0]
    short = replace(limits(config), max_turns=min(TURNS, config.environment.max_turns))
    explorer = Explorer(world, pool, engine, chat, digest, short)
    one_base = replace(plan(config.method, config.rollout.group_size), bases=1)
    [base] = base_stage(explorer, [task], one_base)
    if not base.turns:
        yield note("reply", f"{base.trajectory.status}: {base.trajectory.reason}", "no turn was played")
        return
    answer = base.turns[1].observation if len(base.turns) > 1 else base.trajectory.final_observation
    turn, length = base.turns[0], len(base.turns[0].context_ids)
    yield works("task", f"{config.environment.kind}: opens with {length:,} tokens, {_room(config, length)}")
    summary = f"{turn.response[:SHOWN]!r}, {len(turn.response_ids)} tokens, ended by {turn.finish_reason}"
    if turn.valid:
        yield works("reply", f"{summary}; action {turn.action!r}")
    else:
        yield note("reply", f"{summary}; no action in it", f"the world answered: {answer[:SHOWN]}")
    [reflection] = reflections_stage(explorer, [task], replace(one_base, retried_bases=None), [base], [base], 0)
    summary = f"{reflection.text[:SHOWN]!r}, {len(reflection.response_ids)} tokens, ended by {reflection.finish_reason}"
    if reflection.status == Status.PARSED:
        yield works("reflection", f"{summary}; outcome {reflection.outcome}, pivot {reflection.pivot_turn}")
    else:
        yield note(
            "reflection",
            f"{summary}; {reflection.status}: {reflection.reason}",
            "rollout.structured_reflections=true holds it to the format",
        )


def _room(config: Config, opening: int) -> str:
    """Say how many turns go into the context, if each reply is as long as it may be."""
    turns = max(0, config.policy.context_tokens - opening) // config.environment.reply_tokens
    return (
        f"room for {min(turns, config.environment.max_turns)} of {config.environment.max_turns} turns of full replies"
    )

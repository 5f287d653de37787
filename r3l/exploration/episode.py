"""Play an episode to its end, from its first turn or from a pivot, by the same rules for base, retry and evaluation."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace

from r3l.engines.base import Completion
from r3l.engines.chat_format import ChatFormat
from r3l.environments.base import Observation, Step, World
from r3l.environments.outside import reply_of
from r3l.errors import EngineError, WorldError
from r3l.exploration.explorer import Explorer
from r3l.records import Status, Turn, observation_hash
from r3l.system.seeds import derive


@dataclass(frozen=True, slots=True)
class Start:
    """Where an episode continues: the session is before turn `turn`, and `prompt_ids` end with the generation prompt.

    prompt_ids = kept ids + context_ids; only context_ids are stored with turn `turn`.
    """

    trajectory_id: str
    iteration: int
    seed: int
    turn: int
    observation: str
    context_ids: list[int]
    prompt_ids: list[int]
    standing: float = 0.0  # what the kept turns are worth where nothing is added to them


@dataclass(slots=True)
class Played:
    """The turns played and how it ended."""

    turns: list[Turn] = field(default_factory=list)
    status: Status = Status.COMPLETED
    reason: str = ""
    reward: float = 0.0
    success: bool = False
    final_observation: str = ""
    seconds: float = 0.0
    rolled_back: list[str] | None = None  # of a retry: the observations that the rollback returned

    def end(self, status: Status, reason: str) -> Played:
        self.status, self.reason = status, reason
        return self

    def fail(self, status: Status, reason: str) -> Played:
        """End without a reward: an attempt that broke off has none, however far it came."""
        self.reward = 0.0
        return self.end(status, reason)


async def play(explorer: Explorer, start: Start, stage: str, temperature: float | None = None) -> Played:
    """Play from `start` until the world ends the episode or a limit does. Never raises for a failed world or engine:
    what was played stays, and the status says what happened.

    Raises:
        Interrupted: the engine or the pool was closed; no row is made of the attempt.
        ServerAway: no sampling server, or not the environment's site, answers; no row is made of it either.
    """
    began = time.monotonic()
    result = Played(final_observation=start.observation, reward=start.standing)
    temperature = explorer.limits.temperature if temperature is None else temperature
    try:
        await _turns(explorer, start, stage, temperature, result)
    except EngineError as error:
        result.fail(Status.ENGINE_ERROR, str(error))
    except WorldError as error:
        result.fail(Status.ENVIRONMENT_ERROR, str(error))
    finally:
        explorer.pool.end(start.trajectory_id)
    result.seconds = time.monotonic() - began
    explorer.progress.add(
        stage, done=1, done_tokens=sum(len(turn.response_ids) for turn in result.turns), reward=result.reward
    )
    return result


async def _turns(explorer: Explorer, start: Start, stage: str, temperature: float, played: Played) -> None:
    limits, ids, context, observation = explorer.limits, list(start.prompt_ids), start.context_ids, start.observation
    for k in range(start.turn, limits.max_turns):
        completion = await explorer.complete(
            f"{start.trajectory_id}/turn={k}",
            ids,
            seed=derive(start.seed, start.trajectory_id, k),
            temperature=temperature,
            max_tokens=limits.reply_tokens,
        )
        explorer.progress.add(stage, turns=1, tokens=len(completion.token_ids))
        # no room for a reply is an end of the episode, with the reward of what was played
        if completion.finish_reason == "context":
            played.end(
                Status.CONTEXT_LIMIT,
                f"turn {k}: {len(ids)} prompt tokens leave no room for a reply "
                f"within {explorer.engine.context_limit} tokens",
            )
            return
        turn = _turn(explorer, start, k, observation, context, completion)
        played.turns.append(turn)
        step = await _act(explorer, start.trajectory_id, turn)
        played.turns[-1] = replace(turn, progress=step.progress, reward=step.turn_reward)
        observation = played.final_observation = step.observation.text
        if step.done:
            played.reward, played.success = step.reward, step.success
            if not turn.valid:
                played.end(Status.INVALID_REPLY, f"turn {k}: {observation}")
            return
        if turn.valid:
            # a malformed reply leaves the world, and so what the episode is worth, as it was
            played.reward = step.standing
        context = explorer.chat.following(
            [{"role": step.observation.role, "content": observation}], explorer.chat.closed(completion.token_ids)
        )
        # ids only grow: what was sampled is what is trained, never re-tokenised text
        ids += completion.token_ids + context
    played.end(Status.TURN_LIMIT, f"not done after {limits.max_turns} turns")


def _turn(
    explorer: Explorer, start: Start, k: int, observation: str, context: list[int], completion: Completion
) -> Turn:
    text = explorer.chat.text(completion.token_ids)
    reply = reply_of(explorer.world, explorer.chat.whole(text))
    valid = reply.valid and explorer.chat.closed(completion.token_ids)
    return Turn(
        trajectory_id=start.trajectory_id,
        iteration=start.iteration,
        turn=k,
        observation=observation,
        context_ids=context,
        response_ids=list(completion.token_ids),
        response_logprobs=list(completion.logprobs),
        response=text,
        action=reply.action if valid else "",
        valid=valid,
        finish_reason=completion.finish_reason,
        observation_hash=observation_hash(observation),
    )


def action_ids(world: World, chat: ChatFormat, turn: Turn) -> tuple[int, int]:
    """Find from where to where in a reply the ids stand that the text of its action reaches into; nowhere, where no
    action was taken."""
    if not turn.valid:
        return 0, 0
    ids = turn.response_ids[:-1] if chat.closed(turn.response_ids) else turn.response_ids
    whole = chat.whole(turn.response)
    span = reply_of(world, whole).span or (0, 0)
    start, stop = (place - (len(whole) - len(turn.response)) for place in span)

    def characters(count: int) -> int:
        return len(chat.text(ids[:count]))

    counts = range(len(ids) + 1)
    # Of several ids that make one character, all but the first add nothing: those of the character before the action
    # are left out, those of its last one are not.
    first = bisect_right(counts, start, key=characters) - 1
    return first, max(bisect_left(counts, stop, key=characters), bisect_right(counts, stop, key=characters) - 1)


async def _act(explorer: Explorer, session: str, turn: Turn) -> Step:
    """Play one turn. A valid reply goes to the world; a malformed one costs a turn and is answered with the reason, or
    ends the episode."""
    if turn.valid:
        return await asyncio.wrap_future(explorer.pool.step(session, turn.action))
    reply = reply_of(explorer.world, explorer.chat.whole(turn.response))
    error = reply.error if not reply.valid else f"Your reply was cut off after {explorer.limits.reply_tokens} tokens."
    step = Step(Observation(error))
    if explorer.limits.bad_reply == "end":
        return replace(step, done=True, reward=explorer.limits.malformed_reward)
    return step

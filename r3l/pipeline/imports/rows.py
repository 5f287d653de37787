"""Samples of another package as records of ours: tasks, base attempts with their turns, credit, training rows."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r3l.credit.advantages import group_statistics, signs
from r3l.pipeline.imports.sample import Sample, Tokens
from r3l.records import Credit, Episode, Task, TrainingRow, Trajectory, Turn, observation_hash
from r3l.store.digests import canonical


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Makes ids of texts and texts of ids; without a model of one, neither."""

    encode: Callable[[str], list[int]] = lambda text: []
    decode: Callable[[list[int]], str] = lambda ids: ""


class Reply(NamedTuple):
    """A turn: what was seen, and the reply; their token ids, and the reply's log-probabilities."""

    seen: str
    text: str
    context_ids: list[int]
    ids: list[int]
    logprobs: list[float]


def task_of(iteration: int, slot: int, sample: Sample, package: str) -> Task:
    """Make the task of a group. Its name is of the prompt: of its text, else of its ids."""
    ids = sample.tokens.ids[: first_trained(sample.tokens)] if sample.tokens else []
    name = f"{package}/{observation_hash(sample.prompt or str(ids))}"
    payload = canonical({"prompt": sample.prompt} | sample.about).decode()
    return Task(iteration, slot, name, package, "train", package, payload, 0)


def first_trained(tokens: Tokens) -> int:
    return tokens.trained.index(True) if True in tokens.trained else len(tokens.ids)


def episode(task: Task, attempt: int, sample: Sample, tokenizer: Tokenizer) -> Episode:
    name = f"{task.group_id}/base={attempt}"
    turns = [
        Turn(
            trajectory_id=name,
            iteration=task.iteration,
            turn=k,
            observation=reply.seen,
            context_ids=reply.context_ids,
            response_ids=reply.ids,
            response_logprobs=reply.logprobs,
            response=reply.text,
            action=reply.text,
            valid=True,
            finish_reason="",
            observation_hash=observation_hash(reply.seen),
        )
        for k, reply in enumerate(replies(sample, tokenizer))
    ]
    trajectory = Trajectory(
        trajectory_id=name,
        kind="base",
        iteration=task.iteration,
        task=task.task,
        task_id=task.task_id,
        task_type=task.task_type,
        group_id=task.group_id,
        attempt=attempt,
        status=sample.status,
        reason="" if sample.status == "completed" else "as the package says",
        reward=sample.reward,
        success=sample.reward >= 1,
        turns=len(turns),
        response_tokens=sum(len(turn.response_ids) for turn in turns),
        final_observation="",
        policy="",
        seed=0,
        seconds=0.0,
    )
    return Episode(trajectory, turns)


def replies(sample: Sample, tokenizer: Tokenizer) -> list[Reply]:
    """List the turns: those that the mask parts the tokens into, where there are any, else those of the texts."""
    if sample.tokens is None:
        of_texts = [(seen, text, tokenizer.encode(seen), tokenizer.encode(text)) for seen, text in sample.turns]
        return [Reply(*one, [math.nan] * len(one[3])) for one in of_texts]
    spans = list(spans_of(sample.tokens))
    texts = list(sample.turns)
    if len(texts) != len([ids for _, ids, _ in spans if ids]):  # which words are of which turn is not told
        texts = [(tokenizer.decode(context), tokenizer.decode(ids)) for context, ids, _ in spans]
        texts[:1] = [(sample.prompt or seen, text) for seen, text in texts[:1]]
    texts += [("", "")] * (len(spans) - len(texts))
    return [Reply(seen, text, *span) for (seen, text), span in zip(texts, spans, strict=True)]


def spans_of(tokens: Tokens) -> Iterator[tuple[list[int], list[int], list[float]]]:
    """Yield each run of trained tokens with their log-probabilities, behind those that stand before it; at last what
    follows the last one, behind which nothing is trained."""
    start, size = 0, len(tokens.ids)
    while start < size:
        reply = next((k for k in range(start, size) if tokens.trained[k]), size)
        end = next((k for k in range(reply, size) if not tokens.trained[k]), size)
        yield tokens.ids[start:reply], tokens.ids[reply:end], tokens.logprobs[reply:end]
        start = end


def worth(sample: Sample) -> float | None:
    """Name the advantage of an attempt: as it is told, or the mean of its trained tokens'."""
    if sample.tokens is None or sample.tokens.advantages is None:
        return sample.advantage
    own = trained_advantages(sample.tokens)
    return math.fsum(own) / len(own) if own else None


def trained_advantages(tokens: Tokens) -> list[float]:
    return [one for one, is_trained in zip(tokens.advantages or [], tokens.trained, strict=False) if is_trained]


def credit_of(task: Task, group: Sequence[Sample]) -> list[Credit]:
    """List the credit of a group whose advantages are told, as they are told."""
    advantages = [one for one in map(worth, group) if one is not None]
    if len(advantages) < len(group):
        return []
    mean, std = group_statistics([one.reward for one in group])
    return [
        Credit(
            trajectory_id=f"{task.group_id}/base={attempt}",
            group_id=task.group_id,
            iteration=task.iteration,
            task=task.task,
            kind="base",
            reward=one.reward,
            group_size=len(group),
            group_mean=mean,
            group_std=std,
            scaled=advantage,
            advantage=advantage,
            rule=rule,
            mask_turn=0,
        )
        for attempt, (one, advantage, rule) in enumerate(zip(group, advantages, signs(advantages), strict=True))
    ]


def training_row(task: Task, attempt: int, sample: Sample) -> TrainingRow | None:
    """Make the row of an attempt whose tokens and advantages are told: weight 1 where the mask is, as how they were
    normalised, and which loss read them, is not told. None for any other."""
    tokens, advantage = sample.tokens, worth(sample)
    if tokens is None or tokens.advantages is None or advantage is None:
        return None
    name = f"{task.group_id}/base={attempt}"
    same = len(set(trained_advantages(tokens))) == 1
    return TrainingRow(
        row_id=f"{name}/row",
        group_id=task.group_id,
        iteration=task.iteration,
        source_id=name,
        role="explore",
        term="rl",
        objective="",
        objective_settings="{}",
        reduction="sum",
        coefficient=1.0,
        kl_coefficient=0.0,
        kl_estimator="none",
        advantage=advantage,
        behaviour_policy="",
        token_ids=tokens.ids,
        weights=[float(one) for one in tokens.trained],
        logprobs=[one if is_trained else 0.0 for one, is_trained in zip(tokens.logprobs, tokens.trained, strict=True)],
        trained_tokens=sum(tokens.trained),
        advantages=None if same else tokens.advantages,
    )

"""The requests in flight, and one step of all of them: what is fed, what is sampled, who is done."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from r3l.engines.base import Completion, FinishReason, Sampling
from r3l.engines.constraint import Constraint
from r3l.engines.packing import Feed, Step, plan
from r3l.engines.sampling import draw
from r3l.engines.segments import Segment, SegmentTree, stack_layers

STEP_TOKENS = 1024  # fed in one step at most, so that a long prompt does not hold the others up for long


@dataclass(eq=False)
class Request:
    """One reply in the making, or (`sampling` None) one sequence being scored."""

    request_id: str
    prompt: list[int]
    sampling: Sampling | None
    future: Future[Any]
    segment: Segment | None = None
    unfed: list[int] = field(default_factory=list)
    cached: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    chance: random.Random = field(default_factory=random.Random)
    constraint: Constraint | None = None

    def admit(self, tree: SegmentTree) -> None:
        """Find what is stored of the prompt; the rest is to be fed. The last token always is: it gives the first logits."""
        source, at = tree.find(self.prompt[:-1]) if self.sampling else (tree.root, 0)
        self.segment, self.cached = tree.extend(source, at), at
        self.unfed = self.prompt[at:]
        self.segment.ids.extend(self.unfed)
        if self.sampling:
            self.chance.seed(self.sampling.seed)

    @property
    def ready(self) -> bool:
        """Whether the tokens that it shares with a request in flight have been computed."""
        assert self.segment is not None
        parent = self.segment.parent
        assert parent is not None
        return parent.parent is None or parent.computed >= self.segment.start

    def accept(self, token: int, logprob: float, context_limit: int) -> FinishReason | None:
        """Take a sampled token; says why the reply is over, or None where it goes on."""
        assert self.sampling is not None
        assert self.segment is not None
        self.ids.append(token)
        self.logprobs.append(logprob)
        if self.constraint:
            self.constraint.take(token)
        if token in self.sampling.stop_token_ids:
            return "stop"
        if len(self.ids) >= self.sampling.max_tokens:
            return "length"
        if len(self.prompt) + len(self.ids) >= context_limit:
            return "context"
        self.unfed = [token]
        self.segment.ids.append(token)
        return None


class Batch:
    """All requests in flight on one model. Not thread-safe: the engine's thread owns it."""

    def __init__(self, model: Any, tree: SegmentTree, context_limit: int) -> None:
        self.model = model
        self.tree = tree
        self.context_limit = context_limit
        self.active: list[Request] = []
        self.sampled_tokens = 0
        self.heads = model.config.num_attention_heads

    def admit(self, request: Request) -> None:
        request.admit(self.tree)
        self.active.append(request)

    def step(self) -> None:
        """One forward pass over the new tokens of all requests that are ready; replies that end are delivered."""
        step, requests = self._select()
        wanted = [_wanted(request, feed) for request, feed in zip(requests, step.feeds, strict=True)]
        logits = self._forward(step, requests, [place for places in wanted for place in places])
        _store(step)
        at, samplers, rows = 0, [], []
        for request, feed, places in zip(requests, step.feeds, wanted, strict=True):
            fed, request.unfed = request.unfed[:feed.count], request.unfed[feed.count:]
            if request.sampling is None:
                self._score(request, feed, logits[at:at + len(places)], len(fed))
            elif places:
                samplers.append(request)
                rows.append(at)
            at += len(places)
        if samplers:
            self._sample(samplers, logits[rows] if len(rows) < len(logits) else logits)

    def fail(self, error: Exception) -> None:
        """End every request in flight with `error`."""
        for request in self.active:
            request.future.set_exception(error)
        self.active.clear()

    def _select(self) -> tuple[Step, list[Request]]:
        """Requests that decode first, then prompts in order of arrival, as far as the step has room."""
        feeds: list[Feed] = []
        owners: dict[Segment, Request] = {}
        room = STEP_TOKENS
        for request in sorted(self.active, key=lambda request: len(request.unfed) > 1):
            segment = request.segment
            assert segment is not None
            if not request.ready or room <= 0:
                continue
            count = min(len(request.unfed), room)
            feeds.append(Feed(segment, count, segment.computed))
            owners[segment] = request
            room -= count
        step = plan(feeds, self.heads)
        return step, [owners[feed.segment] for feed in step.feeds]

    def _forward(self, step: Step, requests: Sequence[Request], places: list[int]) -> Tensor:
        """Logits (R, V) of the packed tokens at `places`."""
        ids = [token for request, feed in zip(requests, step.feeds, strict=True) for token in request.unfed[:feed.count]]
        positions = [place for feed in step.feeds for place in range(feed.length, feed.length + feed.count)]
        device = self.model.device
        output = self.model(input_ids=torch.tensor([ids], device=device), position_ids=torch.tensor([positions], device=device),
                            use_cache=False, logits_to_keep=torch.tensor(places, dtype=torch.long, device=device), step=step)
        logits: Tensor = output.logits[0]
        return logits

    def _score(self, request: Request, feed: Feed, logits: Tensor, count: int) -> None:
        """Log-probabilities of the tokens after those that were fed."""
        following = request.prompt[feed.length + 1:feed.length + 1 + count]
        logprobs = logits[:len(following)].float().log_softmax(-1)
        request.logprobs += logprobs.gather(1, torch.tensor(following, device=logits.device)[:, None])[:, 0].tolist()
        if not request.unfed:
            self._finish(request, request.logprobs)

    def _sample(self, requests: list[Request], logits: Tensor) -> None:
        samplings = [request.sampling for request in requests if request.sampling]
        tokens, logprobs = draw(logits, [sampling.temperature for sampling in samplings],
                                [request.chance.random() for request in requests], _allowed(requests, logits))
        self.sampled_tokens += len(tokens)
        for request, token, logprob in zip(requests, tokens, logprobs, strict=True):
            reason = request.accept(token, logprob, self.context_limit)
            if reason:
                self._finish(request, Completion(request.ids, request.logprobs, reason, request.cached))

    def _finish(self, request: Request, result: Any) -> None:
        assert request.segment is not None
        self.active.remove(request)
        self.tree.release(request.segment)
        request.future.set_result(result)


def _wanted(request: Request, feed: Feed) -> list[int]:
    """Places whose logits are needed: all where tokens are scored, else the last one once the prompt is fed."""
    last = feed.first + feed.count
    if request.sampling is None:
        return list(range(feed.first, last))
    return [last - 1] if feed.count == len(request.unfed) else []


def _allowed(requests: Sequence[Request], logits: Tensor) -> Tensor | None:
    """(R, V) true where a token may be drawn; None where no reply is held to a schema."""
    if not any(request.constraint for request in requests):
        return None
    allowed = torch.ones(logits.shape, dtype=torch.bool)
    for row, request in enumerate(requests):
        if request.constraint:
            allowed[row] = request.constraint.allowed()
    return allowed.to(logits.device)


def _store(step: Step) -> None:
    fresh = stack_layers(step.fresh)
    for feed in step.feeds:
        feed.segment.append(fresh[:, :, :, feed.first:feed.first + feed.count])

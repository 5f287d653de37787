"""The requests in flight, and one step of all of them: tokens fed, tokens drawn, replies finished.

Shapes: R places of the packed step whose logits are needed, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from r3l.engines.embedded.compiled_attention import compile_attention
from r3l.engines.embedded.drafting import Drafts
from r3l.engines.embedded.packing import Feed, Step, plan
from r3l.engines.embedded.request import Request
from r3l.engines.embedded.sampling import draw
from r3l.engines.embedded.segments import Segment, SegmentTree, stack_layers

STEP_TOKENS = 1024  # fed in one step at most, so that a long prompt does not hold the others up for long
USUAL = 8  # numbers of tokens of a step are multiples of it


class Batch:
    """All requests in flight on one model. Not thread-safe: the engine's thread owns it."""

    def __init__(self, model: Any, tree: SegmentTree, context_limit: int) -> None:
        self.model = model
        self.tree = tree
        self.drafts = Drafts()
        self.context_limit = context_limit
        self.active: list[Request] = []
        self.sampled_tokens = 0
        config = model.config
        heads = config.num_attention_heads
        self.group = heads // (getattr(config, "num_key_value_heads", None) or heads)
        self.vocabulary: int = model.get_input_embeddings().num_embeddings
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.kernel = compile_attention(size, model.dtype, model.device)

    def admit(self, request: Request) -> None:
        request.admit(self.tree, self.drafts, self.context_limit)
        self.active.append(request)

    def step(self) -> None:
        """Run one forward pass over the new tokens of all requests that are ready, and deliver the replies that end."""
        step, requests = self._select()
        places_of = [_wanted(request, feed) for request, feed in zip(requests, step.feeds, strict=True)]
        logits_RV = self._forward(step, requests, [place for places in places_of for place in places])
        tokens_drawn = self._draw(requests, places_of, logits_RV)
        fresh = stack_layers(step.fresh)
        at = 0
        for request, feed, places in zip(requests, step.feeds, places_of, strict=True):
            # of what was fed, only the known tokens are sure to stay; a guess counts once it was drawn
            stored_tokens = min(feed.count, len(request.unfed))
            if request.sampling is None:
                _score(request, feed, logits_RV[at : at + len(places)])
            elif places:
                part, ids_before = slice(at, at + len(places)), len(request.ids)
                stored_tokens += request.accept(
                    tokens_drawn[0][part], tokens_drawn[1][part], self.drafts, self.context_limit
                )
                self.sampled_tokens += len(request.ids) - ids_before
            else:
                del request.unfed[:stored_tokens]
            at += len(places)
            # keys and values behind a wrong guess are dropped with it
            feed.segment.append(fresh[:, :, :, feed.first : feed.first + stored_tokens])
        self._deliver()

    def fail(self, error: Exception) -> None:
        """End every request in flight with `error`."""
        for request in self.active:
            if not request.future.done():
                request.future.set_exception(error)
        self.active.clear()

    def _select(self) -> tuple[Step, list[Request]]:
        """Select requests that decode first, then prompts in order of arrival, as far as the step has room."""
        feeds: list[Feed] = []
        owners: dict[Segment, Request] = {}
        room = STEP_TOKENS
        # a request that decodes needs one token, and a long prompt would make all of them wait
        for request in sorted(self.active, key=lambda request: len(request.unfed) > 1):
            # a request whose prefix another one computes in this step waits for it, instead of computing it twice
            if room > 0 and request.ready:
                feed = request.feed(room)
                feeds.append(feed)
                owners[feed.segment] = request
                room -= feed.count
        step = plan(feeds, self.group, self.kernel, self.model.device)
        return step, [owners[feed.segment] for feed in step.feeds]

    def _forward(self, step: Step, requests: Sequence[Request], places: list[int]) -> Tensor:
        """Run the packed tokens through the model, and give logits (R, V) at `places`. Filled up to usual numbers of
        tokens: oneDNN compiles its products anew for each number that is new to it (on a CPU, the embedded policy: 143
        us a product, 76 where it isn't)."""
        ids = [
            token
            for request, feed in zip(requests, step.feeds, strict=True)
            for token in (request.unfed + request.guesses)[: feed.count]
        ]
        positions = [place for feed in step.feeds for place in range(feed.length, feed.length + feed.count)]
        ids, positions, logit_places = (part + [0] * (-len(part) % USUAL) for part in (ids, positions, places))
        device = self.model.device
        output = self.model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(logit_places, dtype=torch.long, device=device),
            step=step,
        )
        logits_RV: Tensor = output.logits[0, : len(places)]
        return logits_RV

    def _draw(
        self, requests: Sequence[Request], wanted: list[list[int]], logits_RV: Tensor
    ) -> tuple[list[int], list[float]]:
        """Draw a token and its log-probability for each place (of a scored sequence: not used)."""
        temperatures: list[float] = []
        uniforms: list[float] = []
        for request, places in zip(requests, wanted, strict=True):
            temperatures += [request.sampling.temperature if request.sampling else 0.0] * len(places)
            uniforms += request.numbers(len(places)) if request.sampling else [0.0] * len(places)
        if not any(request.sampling for request in requests) or not temperatures:
            return [], []
        return draw(logits_RV, temperatures, uniforms, _allowed(requests, wanted, logits_RV))

    def _deliver(self) -> None:
        complete = [
            request
            for request in self.active
            if request.finish_reason or (request.sampling is None and not request.unfed)
        ]
        for request in complete:
            self.active.remove(request)
            self.tree.release(request.segment)
        for request in complete:
            if not request.future.done():  # the engine was closed in the middle of the step
                request.future.set_result(request.result())


def _wanted(request: Request, feed: Feed) -> list[int]:
    """List the places whose logits are needed: all where tokens are scored, else the last known one and the guesses."""
    last = feed.first + feed.count
    if request.sampling is None:
        return list(range(feed.first, last))
    return list(range(last - request.draws(feed), last))


def _score(request: Request, feed: Feed, logits_RV: Tensor) -> None:
    """Add the log-probabilities of the tokens after those that were fed."""
    del request.unfed[: feed.count]
    following = request.prompt[feed.length + 1 : feed.length + 1 + feed.count]
    logprobs_RV = logits_RV[: len(following)].float().log_softmax(-1)
    request.logprobs += logprobs_RV.gather(1, torch.tensor(following, device=logits_RV.device)[:, None])[:, 0].tolist()


def _allowed(requests: Sequence[Request], wanted: list[list[int]], logits_RV: Tensor) -> Tensor | None:
    """Mark where a token may be drawn, (R, V); None where no reply is held to a schema."""
    if not any(request.constraint for request in requests):
        return None
    mask_RV = torch.ones(logits_RV.shape, dtype=torch.bool)
    row = 0
    for request, places in zip(requests, wanted, strict=True):
        if request.constraint and places:
            mask_RV[row] = request.constraint.allowed()  # no guesses are made under a constraint: one place
        row += len(places)
    return mask_RV.to(logits_RV.device)

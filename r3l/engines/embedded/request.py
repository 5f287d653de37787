"""One reply in progress: the stored part of its prompt, the tokens to feed, the sampled tokens."""

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from r3l.engines.base import Completion, FinishReason, Sampling
from r3l.engines.embedded.constraint import Constraint
from r3l.engines.embedded.drafting import Drafts
from r3l.engines.embedded.packing import Feed
from r3l.engines.embedded.segments import Segment, SegmentTree


@dataclass(eq=False)
class Request:
    """A reply, or (`sampling` None) one sequence being scored."""

    request_id: str
    prompt: list[int]
    sampling: Sampling | None
    future: Future[Any]
    segment: Segment = field(default_factory=lambda: Segment(None, 0))
    unfed: list[int] = field(default_factory=list)
    guesses: list[int] = field(default_factory=list)  # fed behind `unfed`, kept where they are drawn
    cached: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    chance: random.Random = field(default_factory=random.Random)
    uniforms: list[float] = field(default_factory=list)  # one a token, drawn ahead
    constraint: Constraint | None = None

    def admit(self, tree: SegmentTree, drafts: Drafts, context_limit: int) -> None:
        """Find what is stored of the prompt; the rest is to be fed. The last token always is: it gives the first
        logits."""
        source, at = tree.find(self.prompt[:-1]) if self.sampling else (tree.root, 0)
        self.segment, self.cached = tree.extend(source, at), at
        self.unfed = self.prompt[at:]
        self.segment.ids.extend(self.unfed)
        if self.sampling:
            self.chance.seed(self.sampling.seed)
            self._guess(drafts, context_limit)

    @property
    def ready(self) -> bool:
        """Tell whether the tokens that it shares with a request in flight have been computed."""
        parent = self.segment.parent
        assert parent is not None
        return parent.parent is None or parent.computed >= self.segment.start

    def feed(self, room: int) -> Feed:
        """Take its part of the next step, at most `room` tokens; guesses only behind the last token that is known."""
        count = min(len(self.unfed), room)
        if count == len(self.unfed):
            self.guesses = self.guesses[: room - count]
            return Feed(self.segment, count + len(self.guesses), self.segment.computed)
        return Feed(self.segment, count, self.segment.computed)

    def draws(self, feed: Feed) -> int:
        """Count the tokens that are drawn after this part: one for the last known token and each guess, none amid a
        prompt."""
        return 1 + len(self.guesses) if feed.count >= len(self.unfed) else 0

    def numbers(self, count: int) -> list[float]:
        """Draw the uniform numbers of its next `count` tokens."""
        while len(self.uniforms) < count:
            self.uniforms.append(self.chance.random())
        return self.uniforms[:count]

    def accept(self, tokens: Sequence[int], logprobs: Sequence[float], drafts: Drafts, context_limit: int) -> int:
        """Take the tokens drawn after the last known one and after each guess, up to the first wrong guess or the end
        of the reply. The result is how many guesses were right: their keys and values hold."""
        before = (self.prompt[-8:] + self.ids[-8:])[-8:]
        accepted_tokens = right = 0
        for place, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True)):
            self._take(token, logprob, context_limit)
            accepted_tokens += 1
            # the draw behind a wrong guess was made from a context that does not exist
            if place >= len(self.guesses) or token != self.guesses[place]:
                break
            right += 1
            if self.finish_reason:
                break
        drafts.learn(before, self.ids[-accepted_tokens:], len(self.guesses), right)
        self.segment.ids.extend(self.guesses[:right])
        # one number per token that stays: the reply is the same with any number of guesses
        del self.uniforms[:accepted_tokens]
        self.unfed, self.guesses = [], []
        if not self.finish_reason:
            self.unfed = [self.ids[-1]]
            self.segment.ids.append(self.ids[-1])
            self._guess(drafts, context_limit)
        return right

    def result(self) -> Completion | list[float]:
        return (
            Completion(self.ids, self.logprobs, self.finish_reason, self.cached)
            if self.finish_reason
            else self.logprobs
        )

    def _take(self, token: int, logprob: float, context_limit: int) -> None:
        assert self.sampling is not None
        self.ids.append(token)
        self.logprobs.append(logprob)
        if self.constraint:
            self.constraint.take(token)
        if token in self.sampling.stop_token_ids:
            self.finish_reason = "stop"
        elif len(self.ids) >= self.sampling.max_tokens:
            self.finish_reason = "length"
        elif len(self.prompt) + len(self.ids) >= context_limit:
            self.finish_reason = "context"

    def _guess(self, drafts: Drafts, context_limit: int) -> None:
        assert self.sampling is not None
        if self.constraint is None:
            left = min(self.sampling.max_tokens - len(self.ids), context_limit - len(self.prompt) - len(self.ids))
            self.guesses = drafts.guess((self.prompt[-8:] + self.ids[-8:])[-8:], left - 1)

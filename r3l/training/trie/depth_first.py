"""One depth-first pass over a trie: the gradient of all its sequences, each shared prefix computed once.

A segment's keys and values are handed to its children as gradient leaves; when the children are done, the leaves hold
d loss / d keys and values, and one `backward([loss, K, V], [1, dK, dV])` finishes the segment. Alive at any time: one
path.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from r3l.training.trie.chunked_logprobs import token_logprobs, weighted_logprobs
from r3l.training.trie.decoder import Decoder, KeyValues
from r3l.training.trie.tree import Segment, Trie

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Scores:
    """Aligned with the ids of a trie; 0 at tokens that were not asked for."""

    logp: Floats
    entropy: Floats


@dataclass(slots=True)
class _Frame:
    segment: Segment
    hidden: Tensor | None = None  # [L, H]
    own: KeyValues = field(default_factory=list)  # with the graph behind them
    leaves: KeyValues = field(default_factory=list)  # what the children read


class DepthFirst:
    """A trie on a model. `wanted` [tokens]: the positions whose log-probability is asked for."""

    def __init__(self, decoder: Decoder, trie: Trie, wanted: NDArray[np.bool_], chunk: int = 1024) -> None:
        self.decoder, self.trie, self.wanted, self.chunk = decoder, trie, wanted, chunk
        self.ids = torch.from_numpy(trie.ids).to(decoder.device)
        self.logp = torch.zeros(len(trie.ids), dtype=torch.float64)
        self.entropy = torch.zeros(len(trie.ids), dtype=torch.float64)

    def score(self) -> Scores:
        """Score the wanted tokens without a gradient."""

        def enter(frame: _Frame, path: list[KeyValues]) -> None:
            frame.hidden, frame.leaves = self._run(frame.segment, path)
            sources, targets = self._targets(frame.segment)
            if len(targets):
                logp, entropy = token_logprobs(frame.hidden[sources], self.decoder.head, self.ids[targets], self.chunk)
                self._record(targets, logp, entropy)
            frame.hidden = None

        with torch.no_grad(), self.decoder.along_paths():
            self._traverse(enter, lambda frame, path: None)
        return self._scores()

    def backward(self, gradient: Floats, recompute: bool = False) -> Scores:
        """Add d/dparameters of sum_t gradient[t] logp[t] to the parameters' gradients.

        Args:
            gradient: dL/dlogp of each token of the trie, summed over the sequences that share it.
            recompute: drop the activations of inner segments and compute them again on the way back.
        """
        slopes = torch.from_numpy(gradient).to(self.decoder.device)

        def enter(frame: _Frame, path: list[KeyValues]) -> None:
            # a leaf is left at once, so its activations are never held long; inner ones would be, for the whole subtree
            later = recompute and bool(frame.segment.children)
            with torch.set_grad_enabled(not later):
                states, own = self._run(frame.segment, path)
            if not later:
                frame.hidden, frame.own = states, own
            if frame.segment.children:
                # detached: the children's backward passes end here and add up in the leaves' gradients
                frame.leaves = [(k.detach().requires_grad_(), v.detach().requires_grad_()) for k, v in own]

        def leave(frame: _Frame, path: list[KeyValues]) -> None:
            if frame.hidden is None:
                frame.hidden, frame.own = self._run(frame.segment, path)
            self._backward(frame, slopes)

        with self.decoder.along_paths():
            self._traverse(enter, leave)
        return self._scores()

    def _traverse(
        self, enter: Callable[[_Frame, list[KeyValues]], None], leave: Callable[[_Frame, list[KeyValues]], None]
    ) -> None:
        stack: list[_Frame] = []
        indices: list[int] = []

        def pop() -> None:
            indices.pop()
            frame = stack.pop()
            leave(frame, [above.leaves for above in stack])

        for index, segment in enumerate(self.trie.segments):
            # preorder: every frame that is no ancestor of this segment is complete, and its subtree with it
            while indices and indices[-1] != segment.parent:
                pop()
            # a leaf of one token is only predicted, by its parent's last state
            if segment.inputs:
                frame = _Frame(segment)
                enter(frame, [above.leaves for above in stack])
                stack.append(frame)
                indices.append(index)
        while stack:
            pop()

    def _run(self, segment: Segment, path: list[KeyValues]) -> tuple[Tensor, KeyValues]:
        return self.decoder.forward(self.ids[segment.start : segment.start + segment.inputs], segment.depth, path)

    def _targets(self, segment: Segment) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pair (offsets of hidden states, positions of the wanted tokens that they predict): its own, then its
        children's first."""
        length = segment.stop - segment.start
        firsts = np.array([self.trie.segments[child].start for child in segment.children], np.int64)
        targets = np.concatenate([np.arange(segment.start + 1, segment.stop), firsts])
        # the last state predicts the first token of every child
        sources = np.concatenate([np.arange(length - 1), np.full(len(firsts), length - 1)])
        keep = self.wanted[targets]
        return sources[keep], targets[keep]

    def _backward(self, frame: _Frame, slopes: Tensor) -> None:
        assert frame.hidden is not None
        outputs: list[Tensor] = []
        inflow: list[Tensor] = []
        sources, targets = self._targets(frame.segment)
        if len(targets):
            value, logp, entropy = weighted_logprobs(
                frame.hidden[sources], self.decoder.head, self.ids[targets], slopes[targets], self.chunk
            )
            self._record(targets, logp, entropy)
            outputs.append(value)
            inflow.append(torch.ones_like(value))
        # what all children gave back to the keys and values flows on into this segment's graph
        for own, leaves in zip(frame.own, frame.leaves, strict=False):
            for tensor, leaf in zip(own, leaves, strict=True):
                if tensor.requires_grad and leaf.grad is not None:
                    outputs.append(tensor)
                    inflow.append(leaf.grad)
        if outputs:
            torch.autograd.backward(outputs, inflow)

    def _record(self, targets: NDArray[np.int64], logp: Tensor, entropy: Tensor) -> None:
        self.logp[targets] = logp.detach().double().cpu()
        self.entropy[targets] = entropy.detach().double().cpu()

    def _scores(self) -> Scores:
        return Scores(self.logp.numpy(), self.entropy.numpy())

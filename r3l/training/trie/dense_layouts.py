"""Rows run whole: the baseline of the trie, and the fall-back if a trie would not be exact.

padded   one row of the batch each, filled up to the longest
packed   one after the other in a single sequence, each attending to itself alone
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from r3l.errors import TrainingError
from r3l.training.rows import UpdateRow
from r3l.training.trie.chunked_logprobs import token_logprobs, weighted_logprobs
from r3l.training.trie.decoder import Decoder
from r3l.training.trie.layouts import Limits, Pass

Floats = NDArray[np.float64]


class DenseLayout(ABC):
    """Subclasses say how rows are batched and how a batch is run; each row's last token is only predicted, never
    read."""

    attention = ""  # its name in transformers; empty: the model's own

    @abstractmethod
    def batches(self, rows: Sequence[UpdateRow], tokens: int) -> Iterator[list[int]]:
        """Group indices of rows that are run together, up to `tokens` tokens per batch."""

    @abstractmethod
    def hidden(self, decoder: Decoder, rows: Sequence[UpdateRow]) -> tuple[Tensor, list[NDArray[np.int64]], int]:
        """Run a batch: (hidden states [tokens, H], of each row the places of its tokens in them, tokens computed).
        Rows may share places."""

    def score(self, decoder: Decoder, rows: Sequence[UpdateRow], limits: Limits) -> Pass:
        with torch.no_grad(), decoder.attending(self.attention):
            return self._run(decoder, rows, None, limits)

    def backward(
        self, decoder: Decoder, rows: Sequence[UpdateRow], gradients: Sequence[Floats], limits: Limits
    ) -> Pass:
        with decoder.attending(self.attention):  # until the way back is done: it may run layers again
            return self._run(decoder, rows, gradients, limits)

    def _run(
        self, decoder: Decoder, rows: Sequence[UpdateRow], gradients: Sequence[Floats] | None, limits: Limits
    ) -> Pass:
        logps, entropies = [np.zeros(0)] * len(rows), [np.zeros(0)] * len(rows)
        recomputes = limits.recompute and gradients is not None
        tokens_computed = 0
        for batch in self.batches(rows, limits.micro_batch_tokens):
            batch_rows = [rows[i] for i in batch]
            with decoder.recomputing() if recomputes else nullcontext():
                states, places, tokens = self.hidden(decoder, batch_rows)
            # the state at a position predicts the token after it; what rows share is predicted once
            pairs = np.stack(
                [
                    np.concatenate([place[row.positions - 1] for place, row in zip(places, batch_rows, strict=True)]),
                    np.concatenate([row.token_ids[row.positions] for row in batch_rows]).astype(np.int64),
                ]
            )
            distinct, back = np.unique(pairs, axis=1, return_inverse=True)
            sources, targets = torch.from_numpy(distinct).to(states.device)
            read = states[sources]
            if gradients is None:
                logp, entropy = token_logprobs(read, decoder.head, targets, limits.logits_chunk)
            else:
                sums = np.bincount(back, np.concatenate([gradients[i] for i in batch]), distinct.shape[1])
                slopes = torch.from_numpy(sums).to(states.device)
                value, logp, entropy = weighted_logprobs(read, decoder.head, targets, slopes, limits.logits_chunk)
                value.backward()
            # the batch's tokens came back as one array: cut it into rows again
            ends = np.cumsum([len(row.positions) for row in batch_rows])[:-1]
            for by_row, values in ((logps, logp), (entropies, entropy)):
                for i, part in zip(batch, np.split(values.detach().double().cpu().numpy()[back], ends), strict=True):
                    by_row[i] = part
            tokens_computed += tokens
        return Pass(logps, entropies, tokens_computed)


class PaddedLayout(DenseLayout):
    """Batches of rows in their order, as many as fit into the micro-batch after padding."""

    def batches(self, rows: Sequence[UpdateRow], tokens: int) -> Iterator[list[int]]:
        batch: list[int] = []
        longest = 0
        for i, row in enumerate(rows):
            width = max(longest, len(row.token_ids) - 1)
            # the widest row sets the width of all: what counts is the area, padding included
            if batch and width * (len(batch) + 1) > tokens:
                yield batch
                batch, width = [], len(row.token_ids) - 1
            batch.append(i)
            longest = width
        if batch:
            yield batch

    def hidden(self, decoder: Decoder, rows: Sequence[UpdateRow]) -> tuple[Tensor, list[NDArray[np.int64]], int]:
        width = max(len(row.token_ids) for row in rows) - 1
        ids, mask = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row.token_ids) - 1] = row.token_ids[:-1]
            mask[i, : len(row.token_ids) - 1] = 1
        options = {} if mask.all() else {"attention_mask": torch.from_numpy(mask).to(decoder.device)}
        with decoder.precision():
            out = decoder.body(input_ids=torch.from_numpy(ids).to(decoder.device), use_cache=False, **options)
        return (
            decoder.narrow(out.last_hidden_state.flatten(0, 1)),
            [i * width + np.arange(width) for i in range(len(rows))],
            ids.size,
        )


class PackedLayout(DenseLayout):
    """Batches of rows in their order, as many as fit into the micro-batch, without padding; a prefix is computed as
    often as it occurs."""

    attention = "r3l_packed_rows"

    def batches(self, rows: Sequence[UpdateRow], tokens: int) -> Iterator[list[int]]:
        batch: list[int] = []
        batch_tokens = 0
        for i, row in enumerate(rows):
            if batch and batch_tokens + len(row.token_ids) - 1 > tokens:
                yield batch
                batch, batch_tokens = [], 0
            batch.append(i)
            batch_tokens += len(row.token_ids) - 1
        if batch:
            yield batch

    def hidden(self, decoder: Decoder, rows: Sequence[UpdateRow]) -> tuple[Tensor, list[NDArray[np.int64]], int]:
        lengths = [len(row.token_ids) - 1 for row in rows]
        if any(decoder.sliding):
            raise TrainingError("layout packed does not know sliding windows; set training.layout to trie or padded")
        ids = torch.from_numpy(np.concatenate([row.token_ids[:-1] for row in rows]).astype(np.int64)).to(decoder.device)
        positions = torch.cat([torch.arange(length) for length in lengths]).to(decoder.device)
        # row lengths reach the attention as an option: a mask [tokens, tokens] would be larger than the model
        with decoder.precision():
            out = decoder.body(input_ids=ids[None], position_ids=positions[None], use_cache=False, row_lengths=lengths)
        starts = np.cumsum([0, *lengths[:-1]])
        return (
            decoder.narrow(out.last_hidden_state[0]),
            [s + np.arange(n) for s, n in zip(starts, lengths, strict=True)],
            len(ids),
        )


def _row_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    row_lengths: list[int],
    **options: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each row of a packed sequence."""
    parts = zip(query.split(row_lengths, 2), key.split(row_lengths, 2), value.split(row_lengths, 2), strict=True)
    return torch.cat([sdpa_attention_forward(module, q, k, v, None, **options)[0] for q, k, v in parts], 1), None


AttentionInterface.register(PackedLayout.attention, _row_attention)

"""A trie in one pass: every shared prefix once, all segments in one sequence, each token attending to its own path.

On a GPU a pass takes as long as it has calls to wait for: the depth-first pass, which holds one path at a time, has a
call a segment and layer (an H200, 0.5B, a group of eight: 1.48 s, and 0.13 s for the rows one after another).
Shapes: T tokens of the trie that go through the model.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from r3l.training.rows import UpdateRow
from r3l.training.trie.decoder import Decoder
from r3l.training.trie.dense_layouts import DenseLayout
from r3l.training.trie.tree import Trie, build_trie, common_prefix


class OnePassTrie(DenseLayout):
    """Batches of rows in their order, as many as fit into the micro-batch, what they share counted once."""

    attention = "r3l_tree"

    def batches(self, rows: Sequence[UpdateRow], tokens: int) -> Iterator[list[int]]:
        batch: list[int] = []
        batch_tokens = 0
        for i, row in enumerate(rows):
            own = len(row.token_ids) - 1
            shared = max((common_prefix(row.token_ids, rows[other].token_ids) for other in batch), default=0)
            if batch and batch_tokens + own - shared > tokens:
                yield batch
                batch, batch_tokens, shared = [], 0, 0
            batch.append(i)
            batch_tokens += own - shared
        if batch:
            yield batch

    def hidden(self, decoder: Decoder, rows: Sequence[UpdateRow]) -> tuple[Tensor, list[NDArray[np.int64]], int]:
        trie = build_trie([row.token_ids[:-1] for row in rows])
        depths = np.concatenate([np.arange(part.stop - part.start) + part.depth for part in trie.segments])
        with decoder.precision():
            out = decoder.body(
                input_ids=torch.from_numpy(trie.ids).to(decoder.device)[None],
                position_ids=torch.from_numpy(depths).to(decoder.device)[None],
                use_cache=False,
                mask_TT=mask_of_paths(trie, decoder.device, decoder.dtype),
            )
        return decoder.narrow(out.last_hidden_state[0]), [trie.path(i) for i in range(len(rows))], len(trie.ids)


def mask_of_paths(trie: Trie, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Write what is added to the scores: 0 on a token's path up to itself, -inf elsewhere. (T, T)"""
    count = len(trie.ids)
    # rows begin at multiples of eight numbers: fused kernels would copy others
    mask_TT = torch.full((count, -(-count // 8) * 8), -torch.inf, dtype=dtype, device=device)[:, :count]
    for part in trie.segments:
        own = slice(part.start, part.stop)
        if part.parent >= 0:  # preorder: the parent's last row is done, and holds the whole path above
            mask_TT[own] = mask_TT[trie.segments[part.parent].stop - 1]
        mask_TT[own, own] = mask_TT[own, own].triu(1)
    return mask_TT


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    mask_TT: Tensor,
    **options: Any,
) -> tuple[Tensor, None]:
    out: Tensor = sdpa_attention_forward(module, query, key, value, mask_TT[None, None], **options)[0]
    return out, None


AttentionInterface.register(OnePassTrie.attention, _attend)

"""The weighted loss of a padded batch whose rows share a beginning, which is computed once for one sequence.

Shapes: B rows, P tokens of shared beginning, T tokens after it, D hidden, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from r3l.lab.warm_start.rows import DemoRow


def shared_length(rows: Sequence[DemoRow]) -> int:
    """Count the leading tokens that all rows have in common and none is trained to predict (at least one is left
    over)."""
    # In the order of their ids the first and the last row differ the earliest: all others share at least what these two
    # share.
    first, last = min(row.ids for row in rows), max(row.ids for row in rows)
    limit = min(untrained_length(row) for row in rows)
    return next((k for k in range(limit) if first[k] != last[k]), limit)


def untrained_length(row: DemoRow) -> int:
    """Count the leading tokens of weight 0, one less than all at most."""
    return next((k for k, weight in enumerate(row.weights[:-1]) if weight > 0), len(row.ids) - 1)


def weighted_loss(model: Any, rows: Sequence[DemoRow]) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute sum_t w_t * -log p(t | before) / sum_t w_t, and the plain mean over the fully weighted tokens
    (detached)."""
    P = shared_length(rows)
    ids_BT, weights_BT = pad_rows(rows, P, model.config.pad_token_id)
    shared_P = torch.tensor(rows[0].ids[:P])
    hidden_BTD = hidden_states(model, shared_P, ids_BT)
    is_target = weights_BT > 0
    logits = model.lm_head(hidden_BTD[is_target]).float()
    losses, weights = F.cross_entropy(logits, ids_BT[is_target], reduction="none"), weights_BT[is_target]
    return (losses * weights).sum() / weights.sum(), losses.detach()[weights >= 1].mean()


def pad_rows(rows: Sequence[DemoRow], P: int, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gather ids and weights of what comes after the shared beginning, padded on the right."""
    T = max(len(row.ids) for row in rows) - P
    ids_BT, weights_BT = torch.full((len(rows), T), pad), torch.zeros(len(rows), T)
    for index, row in enumerate(rows):
        ids_BT[index, : len(row.ids) - P] = torch.tensor(row.ids[P:])
        weights_BT[index, : len(row.ids) - P] = torch.tensor(row.weights[P:])
    return ids_BT, weights_BT


def hidden_states(model: Any, shared_P: torch.Tensor, ids_BT: torch.Tensor) -> torch.Tensor:
    """Compute hidden states [B, T, D]: state t predicts ids_BT[:, t]. Gradients reach the shared beginning through its
    keys and values."""
    from transformers import DynamicCache

    B, T = ids_BT.shape
    cache = DynamicCache(config=model.config)
    first: torch.Tensor = model.model(
        input_ids=shared_P[None], past_key_values=cache, use_cache=True
    ).last_hidden_state[:, -1:]
    if T == 1:
        return first.expand(B, 1, -1)
    cache.batch_repeat_interleave(B)
    positions = torch.arange(len(shared_P), len(shared_P) + T - 1)[None]
    later = model.model(
        input_ids=ids_BT[:, :-1], position_ids=positions, past_key_values=cache, use_cache=True
    ).last_hidden_state
    return torch.cat([first.expand(B, 1, -1), later], dim=1)

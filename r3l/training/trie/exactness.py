"""Check that the update can run a model: by its config, then by the model itself on a few tokens."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from r3l.errors import TrainingError
from r3l.training.trie.decoder import Decoder
from r3l.training.trie.dense_layouts import PackedLayout, PaddedLayout
from r3l.training.trie.layouts import Layout, TrieLayout
from r3l.training.trie.one_pass import OnePassTrie

PROBE_TOKENS, SPLIT = 8, 5
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3, torch.bfloat16: 5e-2}  # relative, of all numbers together


def why_not_exact(config: Any) -> str:
    """Explain why a model of this config can't be run along a trie with plain cached forward calls; empty where it
    can."""
    for i, layer in enumerate(DynamicCache(config=config).layers):
        if not isinstance(layer, DynamicLayer):
            return f"layer {i} keeps a {type(layer).__name__}, not keys and values"
    return ""


@torch.no_grad()
def check(decoder: Decoder, segments: bool) -> None:
    """Compare a few logits with the model's own.

    Args:
        segments: check as well that two segments give what one sequence gives.

    Raises:
        TrainingError: they differ: the model does something with its logits, or with its cache, that is not known here.
    """
    vocabulary, name = decoder.head.weight.shape[0], type(decoder.model).__name__
    ids = torch.arange(1, PROBE_TOKENS + 1, device=decoder.device) * 7919 % vocabulary
    with decoder.precision():
        own = decoder.model(input_ids=ids[None], use_cache=False).logits[0]
        states = decoder.narrow(decoder.body(input_ids=ids[None], use_cache=False).last_hidden_state[0])
    if _differ(_logits(decoder, states), own, decoder.dtype):
        raise TrainingError(
            f"the logits of {name} are not those of its output layer (a soft cap or a scale): it can't be trained here"
        )
    if segments:
        first, path = decoder.forward(ids[:SPLIT], 0, [])
        second, _ = decoder.forward(ids[SPLIT:], SPLIT, [path])
        if _differ(torch.cat([first, second]), states, decoder.dtype):
            raise TrainingError(
                f"{name} gives other hidden states for two segments than for one sequence; set training.layout to "
                "padded"
            )


def _logits(decoder: Decoder, hidden: Tensor) -> Tensor:
    bias = decoder.head.bias
    return torch.nn.functional.linear(
        hidden, decoder.head.weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
    )


def _differ(got: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    got, expected = got.double(), expected.double()
    return not float((got - expected).norm()) <= TOLERANCE[dtype] * float(expected.norm())


LAYOUTS: dict[str, type[Layout]] = {"trie": TrieLayout, "padded": PaddedLayout, "packed": PackedLayout}


def choose_layout(name: str, config: Any, device: torch.device) -> tuple[Layout, str]:
    """Choose (the layout of a setting, why not the trie): padded rows stand in where a trie would not be exact for this
    model. A GPU takes the trie in one pass, but for sliding windows, which only the depth-first pass knows."""
    reason = why_not_exact(config) if name == "trie" else ""
    if reason:
        return PaddedLayout(), reason
    slides = any(getattr(layer, "is_sliding", False) for layer in DynamicCache(config=config).layers)
    if name == "trie" and device.type != "cpu" and not slides:
        return OnePassTrie(), ""
    return LAYOUTS[name](), ""

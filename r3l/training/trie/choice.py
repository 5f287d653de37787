"""Which layout a setting means for a model on a device."""

from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from r3l.training.trie.dense_layouts import PackedLayout, PaddedLayout
from r3l.training.trie.exactness import why_not_exact
from r3l.training.trie.layouts import Layout, TrieLayout
from r3l.training.trie.one_pass import OnePassTrie

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

"""The size of a policy: the dimensions of the paper's models, or of a folder's config.json, and what follows from
them."""

import json
from dataclasses import dataclass
from typing import Any

from r3l.config.sections import PolicySettings
from r3l.engines.model_folder import base_of
from r3l.errors import ConfigError
from r3l.system.home import locate


@dataclass(frozen=True)
class Shape:
    """A decoder with gated feed-forward blocks and grouped-query attention."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int
    tied: bool  # one matrix for embedding and output
    biased_qkv: bool = False
    normed_qk: bool = False  # a norm of queries and keys, as in Qwen3

    @property
    def parameters(self) -> int:
        """Count all weights, matrix by matrix."""
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        attention += (
            self.head_size * (self.heads + 2 * self.kv_heads) * self.biased_qkv + 2 * self.head_size * self.normed_qk
        )
        block = attention + 3 * self.hidden * self.feed_forward + 2 * self.hidden
        return self.layers * block + self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    def kv_bytes(self, width: int = 2) -> int:
        """Count the bytes of keys and values for one token of context."""
        return 2 * self.layers * self.kv_heads * self.head_size * width

    def activation_bytes(self, width: int = 2) -> int:
        """Count the bytes that the backward pass keeps for one token, without recomputation: for each layer two inputs
        and two norms of the hidden size, queries before and after rotation and the attention's output, keys and values
        before and after, and gate, up, activated gate and their product."""
        numbers = (
            4 * self.hidden
            + 3 * self.heads * self.head_size
            + 4 * self.kv_heads * self.head_size
            + 4 * self.feed_forward
        )
        return self.layers * numbers * width

    def adapter_parameters(self, rank: int) -> int:
        """Count the parameters of LoRA on every linear layer of the blocks: rank x (in + out) each."""
        q, kv, f, h = self.heads * self.head_size, self.kv_heads * self.head_size, self.feed_forward, self.hidden
        return self.layers * rank * ((h + q) + 2 * (h + kv) + (q + h) + 2 * (h + f) + (f + h))


PAPER = {
    "qwen2.5-1.5b": Shape(28, 1536, 12, 2, 128, 8960, 151_936, tied=True, biased_qkv=True),
    "qwen2.5-7b": Shape(28, 3584, 28, 4, 128, 18_944, 152_064, tied=False, biased_qkv=True),
    "qwen3-4b": Shape(36, 2560, 32, 8, 128, 9728, 151_936, tied=True, normed_qk=True),
    "llama-3.2-3b": Shape(28, 3072, 24, 8, 128, 8192, 128_256, tied=True),
}


def shape_of(policy: PolicySettings) -> Shape:
    """Read the shape in the policy's folder, or take the paper's model of that name where it is not fetched yet.

    Raises:
        ConfigError: neither is there, or the folder's config.json names no such decoder.
    """
    folder = locate(policy.path)
    file = (base_of(folder) or folder) / "config.json"
    if file.is_file():
        return from_config(json.loads(file.read_text()), str(file))
    if policy.name in PAPER:
        return PAPER[policy.name]
    raise ConfigError(
        f"policy {policy.name!r}: no {file}, and it is none of {', '.join(PAPER)}: give --policy a transformers folder"
    )


def from_config(config: dict[str, Any], name: str) -> Shape:
    try:
        heads = config["num_attention_heads"]
        return Shape(
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_size=config.get("head_dim") or config["hidden_size"] // heads,
            feed_forward=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings")),
            biased_qkv=bool(config.get("attention_bias", config.get("model_type") == "qwen2")),
            normed_qk=config.get("model_type") == "qwen3",
        )
    except KeyError as error:
        raise ConfigError(
            f"{name}: has no {error.args[0]!r}; expected the config of a decoder with gated feed-forward blocks"
        ) from error

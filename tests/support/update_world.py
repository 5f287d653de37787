"""Tiny policies and training rows for the tests of the update."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer, models
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from r3l.losses import LOSSES
from r3l.store.tables.schemas import arrow_schema
from r3l.training.rows import UpdateRow
from tests.support import records

VOCABULARY = 61
SIZE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": VOCABULARY, "max_position_embeddings": 512,
    "initializer_range": 0.1, "bos_token_id": None, "eos_token_id": 1,
}  # fmt: skip
FAMILIES: dict[str, Any] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZE, tie_word_embeddings=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZE, tie_word_embeddings=False)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZE, tie_word_embeddings=False)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZE, sliding_window=6)),
}
SETTINGS = {
    "clipped_ratio": {"clip_low": 0.2, "clip_high": 0.28},
    "cispo": {"clip_low": 0.2, "clip_high": 0.28},
    "balanced_ratio": {"clip_low": 0.2, "clip_high": 0.28},
    "sequence_ratio": {"clip_low": 0.02, "clip_high": 0.03},
    "shaped_ratio": {"gamma": 0.1},
}


def tiny_model(family: str = "llama", dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """A random policy. In float64 its norms are torch's own: those of transformers work in float32 inside."""
    torch.manual_seed(seed)
    model = FAMILIES[family]().to(dtype).eval()
    if dtype == torch.float64:
        for name, module in list(model.named_modules()):
            if type(module).__name__.endswith("RMSNorm"):
                norm = torch.nn.RMSNorm(module.weight.shape, module.variance_epsilon, dtype=dtype)
                norm.weight = module.weight
                model.set_submodule(name, norm)
    return model


def write_policy(folder: Path, family: str = "llama", seed: int = 0) -> Path:
    """A policy folder with a tokenizer and a chat template."""
    tiny_model(family, seed=seed).save_pretrained(str(folder))
    words = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), unk_token="w0", eos_token="w1"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(str(folder))
    return folder


def record(name: str, ids: Any, weights: Any, **columns: Any) -> dict[str, Any]:
    """A record of `training_rows`; `weights` may be one number a token, or a list."""
    objective = columns.get("objective", "policy_gradient")
    assert objective in LOSSES
    weights = [float(np.float32(w)) for w in weights]  # the columns are float32
    columns = {name: float(np.float32(value)) if isinstance(value, float) else value for name, value in columns.items()}
    settings = {
        "row_id": name,
        "behaviour_policy": "start",
        "objective_settings": json.dumps(SETTINGS.get(objective, {})),
    }
    return asdict(records.training_row(name, [int(i) for i in ids], weights, **(settings | columns)))


def group(seed: int, name: str = "g0", members: int = 4, **columns: Any) -> list[dict[str, Any]]:
    """A group as R3L makes it: bases, retries that share a prefix with theirs, masked before the pivot, unequal
    weights."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(2, VOCABULARY, 7)
    records = []
    for i in range(members // 2):
        base = rng.integers(2, VOCABULARY, rng.integers(6, 16))
        pivot = int(rng.integers(1, len(base)))
        retry = np.r_[base[:pivot], rng.integers(2, VOCABULARY, rng.integers(3, 9))]
        for kind, reply in (("base", base), ("distilled", retry)):
            weights = np.r_[np.zeros(len(prompt)), np.where(rng.random(len(reply)) < 0.7, rng.uniform(0.02, 0.2), 0)]
            weights[len(prompt) : len(prompt) + (pivot if i else 0)] = 0
            weights[-1] = 0.1
            records.append(
                record(
                    f"{name}/{kind}={i}",
                    np.r_[prompt, reply],
                    weights,
                    group_id=name,
                    **{"advantage": float(rng.normal()), **columns},
                )
            )
    return records


def write_rows(path: Path, records: list[dict[str, Any]]) -> str:
    pq.write_table(pa.Table.from_pylist(records, schema=arrow_schema("training_rows")), path)
    return str(path)


def rows_of(records: list[dict[str, Any]]) -> list[UpdateRow]:
    return [UpdateRow.read(one) for one in records]


def gradient_vector(model: Any) -> torch.Tensor:
    return torch.cat(
        [
            (p.grad if p.grad is not None else torch.zeros_like(p)).flatten()
            for p in model.parameters()
            if p.requires_grad
        ]
    )


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.double() - expected.double()).norm() / expected.double().norm())

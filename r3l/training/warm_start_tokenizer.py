"""The embedded policy's tokenizer and chat template: byte-level BPE, and single tokens for tags, phrases and prompt lines.

A model this small spends most of its time on tokens that carry nothing, so the fixed phrases of ALFWorld's grammar, the
keys of the report and the lines of the prompts are one token each. Any other text still round-trips byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PAD, END = "<|pad|>", "<|end|>"
SPECIAL = [PAD, "<|system|>", "<|user|>", "<|assistant|>", END, "<think>", "</think>", "<action>", "</action>"]
TEMPLATE = ("{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
# Phrases end before a space, so that the word that follows is the same token as everywhere else.
SEEN = ["You are in the middle of a room. Looking quickly around you, you see a", "\n\nYour task is to:", ", you see a",
        ", you see nothing.", ", a", ", and a", "You arrive at", ". The", "The", " is closed.", " is open. In it", ". On the", "On the",
        "You open the", "You close the", "You pick up the", " from the", "You move the", " to the", "You heat the", "You cool the",
        "You clean the", " using the", "You are facing the", ". Next to it", "Nothing happens.", "You are not carrying anything.",
        "You are carrying: a", "There's nothing special about"]
SAID = [" no.", " done.", ". take it.", ". place it.", ". heat it.", ". cool it.", ". clean it.", "go to"]
REPORTED = ['{"trajectory_summary": "', '", "root_cause_analysis": "', '", "trajectory_outcome": "', '", "improvement_suggestion": "',
            '", "retry_from_step":', "success_but_inefficient", "\nTurn", "Before placing,", "Did not", " did not", "Keep this plan.",
            "No mistake.", " is placed.", "\nFeedback:", "\nReward: 0.0", "\nReward: 1.0"]


def train_tokenizer(texts: Iterable[str], prompts: Iterable[str], vocabulary: int, targets: Iterable[str] = ()) -> Any:
    """A fast tokenizer: BPE of `vocabulary` entries at most, all bytes among them, then the phrases and prompt lines.

    `targets` are kinds of objects; as a plan's target ("=mug") each is one token, another one than where it is seen (" mug").
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    phrases = [*SEEN, *SAID, *REPORTED, *prompt_lines(prompts), *(f"={kind}" for kind in targets)]
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(without(phrases, texts), trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), min_frequency=3,
        show_progress=False))
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in dict.fromkeys(phrases)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, bos_token=None,
                                   clean_up_tokenization_spaces=False)
    fast.chat_template = TEMPLATE
    return fast


def prompt_lines(prompts: Iterable[str]) -> list[str]:
    """Lines of several words, each with the newline before it (the first line of a prompt has none)."""
    lines = []
    for prompt in prompts:
        first, *rest = prompt.split("\n")
        lines += [first, *(f"\n{line}" for line in rest)]
    return [line for line in lines if line.count(" ") >= 2 and "$" not in line]


def without(phrases: list[str], texts: Iterable[str]) -> Iterable[str]:
    """The texts with their phrases cut out: what is left for BPE to learn."""
    import re

    pattern = re.compile("|".join(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True)))
    for text in texts:
        yield from filter(None, pattern.split(text))

"""A chat as token ids that only ever grow: what was sampled stays as it was, and the template's glue is appended.

    opening(system, observation)      = C0            ... + A0 (sampled)
    following([observation], closed)  = C1            ... + A1 (sampled)

The end-of-turn token belongs to A where the policy sampled it (so it is trained); where a reply was cut off by its
length limit, `following(..., closed=False)` puts the end-of-turn token in front of C. Where a template opens a reply
with more than its header (Qwen3 without thinking: an empty thinking block), or leaves earlier thinking out, the ids
keep both: they are what the policy saw and wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from r3l.errors import ChatFormatError

Message = dict[str, str]
MARK = "\u241eREPLY\u241e"
START: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
TURN: list[Message] = [{"role": "assistant", "content": MARK}, {"role": "user", "content": "v"}]
FIXED_DATE = "26 Jul 2024"  # Llama's own fallback: today's date would make tomorrow's rerun another prompt


class ChatFormat:
    """The chat template of one tokenizer, checked at construction.

    Raises:
        ChatFormatError: the template can't be extended turn by turn, or its end-of-turn token is not one that stops.
    """

    def __init__(self, tokenizer: Any, thinking: bool | None = None) -> None:
        self.tokenizer = tokenizer
        template = getattr(tokenizer, "chat_template", None)
        if not template:
            raise ChatFormatError("the tokenizer has no chat template: give the policy folder a chat_template.jinja")
        self.options: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        if "date_string" in str(template):
            self.options["date_string"] = FIXED_DATE
        self.check()

    @classmethod
    def load(cls, path: str | Path, thinking: bool | None = None) -> ChatFormat:
        """From a policy folder (or a name on the hub). Raises `ChatFormatError` where it holds no tokenizer."""
        names = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
        if Path(path).is_dir() and not any((Path(path) / name).is_file() for name in names):
            raise ChatFormatError(
                f"policy folder {path}: no tokenizer found (tokenizer.json); save one there with save_pretrained"
            )
        try:
            tokenizer = _tokenizer(path)
        except (OSError, ValueError) as error:
            raise ChatFormatError(f"no tokenizer can be loaded from {path}: {error}") from error
        return cls(tokenizer, thinking)

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation's start, the generation prompt included."""
        return self._encode(self._render(messages))

    def following(self, messages: Sequence[Message], closed: bool = True) -> list[int]:
        """Ids between a reply and the next: (end-of-turn where not `closed`,) glue, messages, generation prompt."""
        ids = self._encode(self._after_reply(messages))
        return ids[1:] if closed else ids

    def text(self, response_ids: Sequence[int]) -> str:
        """A reply as text, without its end-of-turn token."""
        kept = response_ids[:-1] if self.closed(response_ids) else response_ids
        return str(self.tokenizer.decode(list(kept), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def closed(self, response_ids: Sequence[int]) -> bool:
        """Whether the policy ended its turn itself."""
        return bool(response_ids) and response_ids[-1] in self.stop_ids

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """The end-of-turn token: what the template puts directly after a reply."""
        return (self._encode(self._after_reply([{"role": "user", "content": "x"}]))[0],)

    @cached_property
    def reply_opening(self) -> str:
        """What the generation prompt holds beyond the header of a reply, e.g. Qwen3's empty thinking block; mostly
        ""."""
        return self._render(START)[len(self._render([*START, *TURN]).split(MARK)[0]) :]

    @cached_property
    def control_texts(self) -> tuple[str, ...]:
        """Tokens that structure a chat: a text that holds one (an observation, a reply) is data, and may not act as
        it."""
        rendered = self._template([*START, *TURN], generate=False)
        added = [token.content for token in self.tokenizer.added_tokens_decoder.values()]
        named = (self.tokenizer.eos_token, self.tokenizer.bos_token, self.tokenizer.pad_token)
        return tuple(sorted({token for token in added if token in rendered} | {token for token in named if token}))

    def check(self) -> None:
        """Refuse a template that rewrites history, or whose end-of-turn is no single token that sampling can
        produce."""
        start = self._render(START)
        parts = self._render([*START, *TURN, *TURN]).split(MARK)
        if len(parts) != 3 or not start.startswith(parts[0]) or parts[1] + self.reply_opening != parts[2]:
            raise ChatFormatError(
                "this chat template rewrites earlier turns when a turn is added, so sampled tokens could not be kept. Expected the "
                f"conversation to start with {start!r} and each reply to be followed by the same text, got {parts!r}; use a "
                "template whose rendering only grows"
            )
        stop = self.stop_ids[0]
        added = self.tokenizer.added_tokens_decoder.get(stop)
        if stop not in self.tokenizer.all_special_ids and not (added and added.special):
            raise ChatFormatError(
                f"a reply is followed by {self.tokenizer.decode([stop])!r}, which is no special token: "
                "the policy could never learn to stop there; mark the end of turn by a special token"
            )

    def _after_reply(self, messages: Sequence[Message]) -> str:
        return self._render([*START, TURN[0], *messages]).split(MARK, 1)[-1]

    def _render(self, messages: Sequence[Message]) -> str:
        return self._template(
            [{**message, "content": self._as_data(message["content"])} for message in messages], generate=True
        )

    def _template(self, messages: Sequence[Message], generate: bool) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    list(messages), tokenize=False, add_generation_prompt=generate, **self.options
                )
            )
        except TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ChatFormatError(
                f"the chat template refuses the roles {roles}: {error}. For a system message between turns, "
                "set method.guidance_position=user"
            ) from error

    def _as_data(self, content: str) -> str:
        for token in self.control_texts:
            content = content.replace(token, f"{token[0]}\u200b{token[1:]}")
        return content

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def _tokenizer(path: str | Path) -> Any:
    """By transformers where that is installed, else by the tokenizers library alone: the same ids."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        from r3l.engines.light_tokenizer import LightTokenizer

        return LightTokenizer(Path(path))
    return AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)

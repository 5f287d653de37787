"""A chat as token ids that only ever grow: what was sampled stays as it was, and the template's glue is appended.

    opening(system, observation)      = C0            ... + A0 (sampled)
    following([observation], closed)  = C1            ... + A1 (sampled)

The end-of-turn token belongs to A where the policy sampled it (so it is trained); where a reply was cut off by its
length limit, `following(..., closed=False)` puts the end-of-turn token in front of C.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from r3l.errors import ChatFormatError

Message = dict[str, str]
MARK = "\u241eREPLY\u241e"


class ChatFormat:
    """The chat template of one tokenizer, checked at construction.

    Raises:
        ChatFormatError: the template can't be extended turn by turn, or its end-of-turn token is not one that stops.
    """

    def __init__(self, tokenizer: Any, thinking: bool | None = None) -> None:
        self.tokenizer = tokenizer
        self.options: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        if not getattr(tokenizer, "chat_template", None):
            raise ChatFormatError("the tokenizer has no chat template: give the policy folder a chat_template.jinja")
        self.check()

    @classmethod
    def load(cls, path: str | Path, thinking: bool | None = None) -> ChatFormat:
        """From a policy folder. Raises `ChatFormatError` where it holds no tokenizer."""
        from transformers import AutoTokenizer

        if not any((Path(path) / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")):
            raise ChatFormatError(f"policy folder {path}: no tokenizer found (tokenizer.json); save one there with save_pretrained")
        return cls(AutoTokenizer.from_pretrained(str(path), trust_remote_code=False), thinking)

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation's start, the generation prompt included."""
        return self._encode(self._render(messages, generate=True))

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

    def check(self) -> None:
        """Refuse a template that rewrites history, or whose end-of-turn is no single token that sampling can produce."""
        probe = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
        later = [*probe, {"role": "assistant", "content": MARK}, {"role": "user", "content": "v"}]
        first = self._render(probe, generate=True)
        whole = self._render(later, generate=True)
        if not whole.startswith(first):
            raise ChatFormatError("this chat template rewrites earlier turns when a turn is added, so sampled tokens could not "
                                  "be kept; use a template whose rendering only grows (for Qwen3: thinking set explicitly)")
        stop = self.stop_ids[0]
        if stop not in self.tokenizer.all_special_ids:
            raise ChatFormatError(f"a reply is followed by {self.tokenizer.decode([stop])!r}, which is no special token: "
                                  "the policy could never learn to stop there; mark the end of turn by a special token")

    def _after_reply(self, messages: Sequence[Message]) -> str:
        probe = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": MARK}]
        return self._render([*probe, *messages], generate=True).split(MARK, 1)[1]

    def _render(self, messages: Sequence[Message], generate: bool) -> str:
        return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=generate, **self.options))

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

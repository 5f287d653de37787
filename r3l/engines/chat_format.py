"""A chat as token ids that only ever grow: what was sampled stays as it was, and the template's glue is appended.

    opening(system, observation)      = C0            ... + A0 (sampled)
    following([observation], closed)  = C1            ... + A1 (sampled)

The end-of-turn token belongs to A where the policy sampled it (so it is trained); where a reply was cut off by its
length limit, `following(..., closed=False)` puts the end-of-turn token in front of C. Where a template opens a reply
with more than its header (Qwen3 without thinking: an empty thinking block), or leaves earlier thinking out, the ids
keep both: they are what the policy saw and wrote.

Tools are shown by the template in the opening; what a tool returned follows as a message of the role `tool`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from r3l.errors import ChatFormatError

Message = dict[str, str]
Tool = dict[str, Any]
MARK = "\u241eREPLY\u241e"
START: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
TURN: list[Message] = [{"role": "assistant", "content": MARK}, {"role": "user", "content": "v"}]
TOOL_TURN: list[Message] = [TURN[0], {"role": "tool", "content": "w"}]
THOUGHT = "\u241eTHOUGHT\u241e"
TAG = re.compile(r"</?[A-Za-z][\w.-]*>")
FIXED_DATE = "26 Jul 2024"  # Llama's own fallback: today's date would make tomorrow's rerun another prompt


class ChatFormat:
    """The chat template of one tokenizer, checked at construction. `tools`: functions that the template is to show, as
    ``{"type": "function", "function": {"name": ..., "description": ..., "parameters": <JSON schema>}}``.

    Raises:
        ChatFormatError: the template can't be extended turn by turn, its end-of-turn token is not one that stops, or it
            has no place for the tools or for what they return.
    """

    def __init__(self, tokenizer: Any, thinking: bool | None = None, tools: Sequence[Tool] = ()) -> None:
        self.tokenizer, self.tools = tokenizer, tuple(tools)
        template = getattr(tokenizer, "chat_template", None)
        if not template:
            raise ChatFormatError("the tokenizer has no chat template: give the policy folder a chat_template.jinja")
        self.options: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        if "date_string" in str(template):
            self.options["date_string"] = FIXED_DATE
        self.check()

    @classmethod
    def load(
        cls, path: str | Path, thinking: bool | None = None, tools: Sequence[Tool] = (), light: bool = False
    ) -> ChatFormat:
        """Load the chat format from a policy folder (or a name on the hub).

        Args:
            light: without transformers, whose import takes seconds, where the folder has a tokenizer.json.

        Raises:
            ChatFormatError: it has no tokenizer.
        """
        names = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
        if Path(path).is_dir() and not any((Path(path) / name).is_file() for name in names):
            raise ChatFormatError(
                f"policy folder {path}: no tokenizer found (tokenizer.json); save one there with save_pretrained"
            )
        try:
            tokenizer = _tokenizer(path, light and (Path(path) / "tokenizer.json").is_file())
        except (OSError, ValueError) as error:
            raise ChatFormatError(f"no tokenizer can be loaded from {path}: {error}") from error
        return cls(tokenizer, thinking, tools)

    def opening(self, messages: Sequence[Message], tools: bool = False) -> list[int]:
        """Render a conversation's start as ids, the generation prompt included; the tools are shown where that is asked
        for."""
        return self._encode(self._render(messages, tools))

    def following(self, messages: Sequence[Message], closed: bool = True) -> list[int]:
        """Render the ids between a reply and the next: (end-of-turn where not `closed`,) glue, messages, generation
        prompt."""
        ids = self._encode(self._after_reply(messages))
        return ids[1:] if closed else ids

    def text(self, response_ids: Sequence[int]) -> str:
        """Decode a reply, without its end-of-turn token."""
        without_stop = response_ids[:-1] if self.closed(response_ids) else response_ids
        return str(
            self.tokenizer.decode(list(without_stop), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def closed(self, response_ids: Sequence[int]) -> bool:
        """Tell whether the policy ended its turn itself."""
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
    def thought_opening(self) -> str:
        """The opening of a thought that the template writes in the policy's place, e.g. "<think>\\n"; mostly ""."""
        opening = self.reply_opening.rpartition("</think>")[2]
        return opening[opening.index("<think>") :] if "<think>" in opening else ""

    def whole(self, text: str) -> str:
        """Complete a reply as it is parsed: with the opening of its thought where the template wrote that, and the
        policy did not write it again."""
        return text if "<think>" in text.partition("</think>")[0] else self.thought_opening + text

    @cached_property
    def keeps_thinking(self) -> bool | None:
        """Tell whether the template shows the thinking of earlier replies; None where it has no word for thinking. The
        ids hold it in any case."""
        if not {"<think>", "enable_thinking"} & set(
            re.findall(r"<think>|enable_thinking", str(self.tokenizer.chat_template))
        ):
            return None
        thought = f"<think>\n{THOUGHT}\n</think>\n\n{MARK}"
        turn = [{"role": "assistant", "content": thought}, TURN[1]]
        return THOUGHT in self._template([*START, *turn], generate=True, tools=False)

    @cached_property
    def control_texts(self) -> tuple[str, ...]:
        """Tokens that structure a chat: a text that holds one (an observation, a reply) is data, and may not act as
        it."""
        sample = self._template([*START, *TURN], generate=False, tools=False)
        added_tokens = [token.content for token in self.tokenizer.added_tokens_decoder.values()]
        role_tokens = (self.tokenizer.eos_token, self.tokenizer.bos_token, self.tokenizer.pad_token)
        return tuple(
            sorted({token for token in added_tokens if token in sample} | {token for token in role_tokens if token})
        )

    @cached_property
    def tool_tags(self) -> tuple[str, ...]:
        """Tags by which the template marks tools and what they return, such as ``</tool_response>``: an observation
        that holds one may not act as it."""
        if not self.tools:
            return ()
        sample = self._template([*START, *TOOL_TURN], generate=False)
        for tool in self.tools:  # tags of a description are none of the template's
            sample = sample.replace(json.dumps(tool, ensure_ascii=False), "")
        return tuple(
            sorted(set(TAG.findall(sample)) - set(TAG.findall(self._template(START, generate=False, tools=False))))
        )

    def check(self) -> None:
        """Refuse a template that rewrites history, or whose end-of-turn is no single token that sampling can
        produce."""
        self._check_growth(TURN)
        if self.tools:
            self._check_tools()
        stop = self.stop_ids[0]
        added_token = self.tokenizer.added_tokens_decoder.get(stop)
        if stop not in self.tokenizer.all_special_ids and not (added_token and added_token.special):
            raise ChatFormatError(
                f"a reply is followed by {self.tokenizer.decode([stop])!r}, which is not a special token, "
                "so the policy could never learn to stop there; mark the end of a turn with a special token"
            )

    def _check_growth(self, turn: list[Message]) -> None:
        """Raise `ChatFormatError` if the template renders two such turns differently from one after the other."""
        start = self._render(START)
        parts = self._render([*START, *turn, *turn]).split(MARK)
        if len(parts) != 3 or not start.startswith(parts[0]) or parts[1] + self.reply_opening != parts[2]:
            raise ChatFormatError(
                "this chat template rewrites earlier turns when a turn is added, so sampled tokens could not be kept. "
                f"Expected the conversation to start with {start!r} and each reply to be followed by the same text, "
                f"got {parts!r}; use a template whose rendering only grows"
            )

    def _check_tools(self) -> None:
        """Raise `ChatFormatError` where the template leaves out a tool, or what one returned."""
        opening = self._render(START)
        missing_names = [name for tool in self.tools if (name := str(tool["function"]["name"])) not in opening]
        if missing_names:
            raise ChatFormatError(
                f"this chat template does not show tools ({missing_names[0]} is not in the opening): set "
                "environment.tools_shown=prompt, or take a policy whose template has a place for `tools`"
            )
        self._check_growth(TOOL_TURN)
        answer = "returned by a tool"
        if answer not in self._after_reply([{"role": "tool", "content": answer}]):
            raise ChatFormatError(
                "this chat template leaves out messages of the role tool: set environment.tools_shown=prompt"
            )

    def _after_reply(self, messages: Sequence[Message]) -> str:
        return self._render([*START, TURN[0], *messages]).split(MARK, 1)[-1]

    def _render(self, messages: Sequence[Message], tools: bool = True) -> str:
        return self._template([self._as_data(message) for message in messages], generate=True, tools=tools)

    @cached_property
    def folds_system(self) -> bool:
        """Tell whether the template has no system role: it refuses the message, or leaves it out without a word. Then
        the message begins the user's."""
        try:
            return MARK not in self._applied([{"role": "system", "content": MARK}, START[1]], {})
        except TemplateError:
            return True

    def _template(self, messages: Sequence[Message], generate: bool, tools: bool = True) -> str:
        if self.folds_system:
            messages = fold_system_messages(messages)
        tool_options = {"tools": list(self.tools)} if tools and self.tools else {}
        try:
            return self._applied(messages, tool_options | {"add_generation_prompt": generate})
        except TemplateError as error:
            roles = [message["role"] for message in messages]
            advice = (
                "set method.guidance_position=user, and no system message stands between turns"
                if "system" in roles[1:]
                else "give the policy folder a chat_template.jinja that has these roles"
            )
            raise ChatFormatError(
                f"the chat template refuses the roles {', '.join(roles)}: {error}; {advice}"
            ) from error

    def _applied(self, messages: Sequence[Message], more: dict[str, Any]) -> str:
        return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, **self.options, **more))

    def _as_data(self, message: Message) -> Message:
        content = message["content"]
        tags = () if not self.tools or message["role"] == "system" else self.tool_tags
        for token in (*self.control_texts, *tags):
            content = content.replace(token, f"{token[0]}\u200b{token[1:]}")
        return {**message, "content": content}

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def fold_system_messages(messages: Sequence[Message]) -> list[Message]:
    """Put each system message before the user's that follows it; one that nothing follows is the user's."""
    messages_out: list[Message] = []
    for message in messages:
        if messages_out and messages_out[-1]["role"] == "system" and message["role"] in ("system", "user"):
            content = f"{messages_out.pop()['content']}\n\n{message['content']}"
            messages_out.append({**message, "content": content})
        else:
            messages_out.append(message)
    return [{**message, "role": "user"} if message["role"] == "system" else message for message in messages_out]


def _tokenizer(path: str | Path, light: bool) -> Any:
    """Load the tokenizer with transformers if it is installed and not avoided, otherwise with the tokenizers library:
    the ids are the same."""
    if not light:
        try:
            from transformers import AutoTokenizer
        except ImportError:
            light = True
    if light:
        from r3l.engines.light_tokenizer import LightTokenizer

        return LightTokenizer(Path(path))
    return AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)

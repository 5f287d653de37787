"""Messages of an episode as texts that the policy is shown."""

from collections.abc import Sequence
from typing import Any

from r3l.config.environments.adapters import VerifiersSettings
from r3l.environments import outside
from r3l.environments.adapters.texts import clean
from r3l.environments.base import Observation
from r3l.environments.tools.functions import result_message
from r3l.errors import WorldError


def text_of(message: Any) -> str:
    """Read a message's content: only an assistant's, which may be calls alone, is empty where it is None.

    Raises:
        WorldError: it is no text, or has parts that are none.
    """
    content = message.get("content")
    if content is None and role_of(message) == "assistant":
        return ""
    if not isinstance(content, list | tuple):
        return outside.text_of(content, f"content of a message of the role {role_of(message)}")
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            kind = repr(part.get("type")) if isinstance(part, dict) else outside.value_and_type(part)
            raise WorldError(f"a message has a part of type {kind}: expected text alone")
    return "\n".join(outside.text_of(part.get("text"), "text of a message's part") for part in content)


def role_of(message: Any) -> str:
    return str(message["role"])


def opening_text(messages: Sequence[Any], system_prompt: str) -> str:
    """Write the first observation: the prompt without the environment's own system message, examples with who says
    what."""
    messages_shown = list(messages)
    if messages_shown and role_of(messages_shown[0]) == "system" and text_of(messages_shown[0]) == system_prompt:
        messages_shown = messages_shown[1:]
    if len(messages_shown) == 1:
        return text_of(messages_shown[0])
    return "\n\n".join(f"{role_of(message).capitalize()}: {text_of(message)}" for message in messages_shown)


def new_messages(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Find what `after` adds to `before`. Raise `WorldError` where it rewrites it."""
    if [same(message) for message in after[: len(before)]] != [same(message) for message in before]:
        raise WorldError(
            "the environment rewrites its conversation: expected one that only grows, so that sampled tokens are kept"
        )
    return list(after[len(before) :])


def added_observation(messages: Sequence[Any], settings: VerifiersSettings) -> Observation:
    """Show what the environment added; in the role tool where all of it was returned by tools."""
    text = clean("\n".join(map(text_of, messages)), settings.observation_characters)
    if messages and all(role_of(message) == "tool" for message in messages):
        return result_message(text, settings.tools_shown)
    return Observation(text)


def same(message: Any) -> tuple[str, str]:
    return role_of(message), text_of(message)

"""Worlds of verifiers where its package is not needed: messages as texts, and what is missing is said."""

import pytest

from r3l.config.environments.adapters import VerifiersSettings
from r3l.environments.kinds import tasks_of
from r3l.environments.verifiers.conversation import new_messages, opening_text
from r3l.errors import ConfigError, WorldError


def test_an_opening_and_what_is_added_as_texts() -> None:
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    assert opening_text(prompt, "s") == "q"
    assert opening_text(prompt, "other") == "System: s\n\nUser: q"
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert new_messages(prompt, [*prompt, *parts]) == parts
    assert opening_text(parts, "") == "a\nb"
    with pytest.raises(WorldError, match="rewrites its conversation"):
        new_messages(prompt, prompt[1:])
    with pytest.raises(WorldError, match="a part of type 'image_url'"):
        opening_text([{"role": "user", "content": [{"type": "image_url"}]}], "")


def test_an_environment_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match=r"environment\.env is empty"):
        tasks_of(VerifiersSettings(), "train")

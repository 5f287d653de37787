"""Chats of random texts: decode(ids) is the template's rendering, ids only grow, and the spans of turns are exact."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r3l.engines.chat_format import ChatFormat
from tests.unit.chat_tokenizers import FAMILIES, family_tokenizer

CHATS = {family: ChatFormat(family_tokenizer(template), thinking) for family, (template, thinking) in FAMILIES.items()}
letters = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\u241e<|>\u200b")
texts = st.text(letters, min_size=1, max_size=30).map(str.strip).filter(bool)
turns = st.lists(st.tuples(texts, texts, st.booleans()), min_size=1, max_size=6)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(system=texts, turns=turns)
def test_ids_are_the_rendering_and_only_grow(family: str, system: str, turns: list[tuple[str, str, bool]]) -> None:
    chat = CHATS[family]
    end = chat.tokenizer.decode(chat.stop_ids)
    ids: list[int] = []
    spans: list[tuple[int, int]] = []
    closed = True
    messages = [{"role": "system", "content": system}]
    for number, (observation, reply, ends_itself) in enumerate(turns):
        before = list(ids)
        user = {"role": "user", "content": observation}
        messages.append(user)
        ids += chat.following([user], closed) if number else chat.opening(messages)
        assert ids[: len(before)] == before
        rendered = chat.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **chat.options
        )
        assert chat.tokenizer.decode(ids) == _with_replies(rendered, chat.reply_opening, number)
        start = len(ids)
        ids += chat.tokenizer.encode(reply, add_special_tokens=False) + (list(chat.stop_ids) if ends_itself else [])
        spans.append((start, len(ids)))
        closed = chat.closed(ids[start:])
        assert closed == ends_itself
        messages.append({"role": "assistant", "content": reply})
    for (start, stop), (_, reply, ends_itself) in zip(spans, turns, strict=True):
        assert chat.tokenizer.decode(ids[start:stop]) == reply + (end if ends_itself else "")
        assert chat.text(ids[start:stop]) == reply


def _with_replies(rendered: str, reply_opening: str, replies: int) -> str:
    """The rendering with what the generation prompt holds beyond a reply's header, which a template leaves out of the
    past."""
    if not reply_opening:
        return rendered
    head, *rest = rendered.split("<|im_start|>assistant\n")
    assert len(rest) == replies + 1
    return head + "".join("<|im_start|>assistant\n" + reply_opening + part.removeprefix(reply_opening) for part in rest)

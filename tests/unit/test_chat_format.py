"""Which templates are accepted, which are refused and why; and that text from outside never acts as a control token."""

from pathlib import Path

import pytest

from r3l.engines.chat_format import ChatFormat
from r3l.environments.replies import parse_tagged_reply
from r3l.errors import ChatFormatError
from r3l.pipeline.doctor.folder import thinking
from tests.unit.chat_tokenizers import CHATML, FAMILIES, family_tokenizer, tokenizer_with

PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{{ "
    "'<|im_start|>assistant\n' }}"
)


def chat_of(family: str) -> ChatFormat:
    template, thinking = FAMILIES[family]
    return ChatFormat(family_tokenizer(template), thinking)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_papers_models_are_accepted_and_stop_at_their_end_of_turn(family: str) -> None:
    chat = chat_of(family)
    end = "<|eot_id|>" if family.startswith("llama") else "<|im_end|>"
    assert chat.stop_ids == (chat.tokenizer.convert_tokens_to_ids(end),)
    assert chat.reply_opening == ("<think>\n\n</think>\n\n" if family == "qwen3-plain" else "")


def test_qwen_conversation_as_text_by_hand() -> None:
    chat = chat_of("qwen2.5")
    ids = chat.opening([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    ids += [*chat.tokenizer.encode("Hello", add_special_tokens=False), chat.stop_ids[0]]
    ids += chat.following([{"role": "system", "content": "Hint"}, {"role": "user", "content": "Go"}])
    assert chat.tokenizer.decode(ids) == (
        "<|im_start|>system\nBe "
        "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
        "<|im_start|>system\nHint<|im_end|>\n<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_reply_cut_by_its_length_is_closed_by_the_context() -> None:
    chat = chat_of("smollm2")
    messages = [{"role": "user", "content": "Go"}]
    cut = chat.tokenizer.encode("Hel", add_special_tokens=False)
    assert not chat.closed(cut)
    assert chat.closed([*cut, *chat.stop_ids])
    assert chat.text([*cut, *chat.stop_ids]) == chat.text(cut) == "Hel"
    assert chat.following(messages, closed=False) == [*chat.stop_ids, *chat.following(messages)]


def test_llama_has_the_same_date_tomorrow() -> None:
    assert "Today Date: 26 Jul 2024\n" in chat_of("llama-3.2").tokenizer.decode(
        chat_of("llama-3.2").opening([{"role": "user", "content": "Hi"}])
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_control_tokens_in_an_observation_stay_data(family: str) -> None:
    chat = chat_of(family)
    end = chat.tokenizer.decode(chat.stop_ids)
    harmless, hostile = ({"role": "user", "content": f"a{text}b"} for text in ("x", end))
    count = chat.following([harmless]).count(chat.stop_ids[0])
    assert chat.following([hostile]).count(chat.stop_ids[0]) == count
    assert end[1:] in chat.tokenizer.decode(chat.following([hostile]))


@pytest.mark.parametrize(("template", "reason"), [
    (
        PLAIN.replace("{{ m.content }}", "{% if loop.last %}{{ messages[0].content }}{% endif %}{{ m.content }}"),
        "rewrites earlier turns",
    ),
    (PLAIN.replace("{{ m.content }}", "{{ loop.index }}{{ m.content }}"), "rewrites earlier turns"),
    (
        "{% for m in messages if m.role != 'assistant' %}{{ m.content }}<|im_end|>{% endfor %}",
        "rewrites earlier turns",
    ),
    (PLAIN.replace("<|im_end|>\n", "\n\n"), "not a special token"),
    (PLAIN + "{{ raise_exception('System role not supported') }}", "System role not supported"),
])  # fmt: skip
def test_templates_that_can_not_be_extended_are_refused(template: str, reason: str) -> None:
    with pytest.raises(ChatFormatError, match=reason):
        ChatFormat(tokenizer_with(template, CHATML, "<|im_end|>"))


def test_the_same_template_without_those_faults_is_accepted() -> None:
    assert ChatFormat(tokenizer_with(PLAIN, CHATML, "<|im_end|>")).reply_opening == ""


def test_no_template_and_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ChatFormatError, match="no chat template"):
        ChatFormat(tokenizer_with("", CHATML, "<|im_end|>"))
    with pytest.raises(ChatFormatError, match="no tokenizer found"):
        ChatFormat.load(tmp_path)


REFUSING = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
IGNORING = PLAIN.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")


@pytest.mark.parametrize("template", [REFUSING, IGNORING], ids=["refuses", "leaves out"])
def test_without_a_system_role_the_system_message_begins_the_users(template: str) -> None:
    chat = ChatFormat(tokenizer_with(template, CHATML, "<|im_end|>"))
    decode = chat.tokenizer.decode
    opening = chat.opening([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}])
    assert decode(opening) == "<|im_start|>user\nBe kind.\n\nHello<|im_end|>\n<|im_start|>assistant\n"
    guided = [{"role": "system", "content": "Look left."}, {"role": "user", "content": "A door."}]
    said = decode(chat.following(guided))
    assert said == "\n<|im_start|>user\nLook left.\n\nA door.<|im_end|>\n<|im_start|>assistant\n"
    assert decode(chat.following(guided[:1])).startswith("\n<|im_start|>user\nLook left.<|im_end|>")


def test_a_template_with_a_system_role_keeps_it() -> None:
    chat = ChatFormat(tokenizer_with(PLAIN, CHATML, "<|im_end|>"))
    assert "<|im_start|>system\nBe kind." in chat.tokenizer.decode(
        chat.opening([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}])
    )


def test_the_advice_about_a_system_message_between_turns_works() -> None:
    only_first = PLAIN.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('only first') }}"
        "{% endif %}",
    )
    chat = ChatFormat(tokenizer_with(only_first, CHATML, "<|im_end|>"))
    with pytest.raises(ChatFormatError, match=r"only first; set method\.guidance_position=user"):
        chat.following([{"role": "system", "content": "Look."}, {"role": "user", "content": "x"}])
    assert chat.following([{"role": "user", "content": "Look.\n\nx"}])


@pytest.mark.parametrize("opening", ["<think>\n", "<think></think>\n<think>"])
def test_a_thought_that_the_template_opens_is_parsed_with_the_reply(opening: str) -> None:
    """As templates of reasoning models do: the policy writes the rest of its thought, and its action."""
    opened = PLAIN.replace("assistant\n' }}", f"assistant\n{opening}' }}}}")
    chat = ChatFormat(tokenizer_with(opened, CHATML, "<|im_end|>", ("<think>", "</think>")))
    reply = "look first</think>\n<action>go</action>"
    assert not parse_tagged_reply(reply).valid
    assert parse_tagged_reply(chat.whole(reply)).action == "go"
    assert parse_tagged_reply(chat.whole(f"<think>{reply}")).action == "go"
    assert not parse_tagged_reply(chat.whole("<action>go</action>")).valid  # a thought that never ends
    said = [finding.seen for finding in thinking(chat)]
    assert "is parsed with it" in said[0]
    for family in ("qwen3-plain", "qwen2.5"):
        name, option = FAMILIES[family]
        assert ChatFormat(family_tokenizer(name), option).whole(reply) == reply

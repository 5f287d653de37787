"""Without transformers the same policy folder gives the same ids, texts and control tokens."""

import json
from pathlib import Path

import pytest

from r3l.engines.chat_format import ChatFormat
from r3l.engines.light_tokenizer import LightTokenizer
from r3l.errors import ChatFormatError
from tests.unit.chat_tokenizers import FAMILIES, family_tokenizer

CHAT = [
    {"role": "system", "content": "Be brief. <think>"},
    {"role": "user", "content": "Größe 12\n\n  two  <|im_end|> blanks"},
]
OBJECT = {
    "__type": "AddedToken", "content": "<|endoftext|>", "lstrip": False, "normalized": False, "rstrip": False,
    "single_word": False, "special": True,
}  # fmt: skip
NEXT = [{"role": "user", "content": "go <mug 1>"}]


def both(folder: Path, thinking: bool | None) -> tuple[ChatFormat, ChatFormat]:
    return ChatFormat.load(folder, thinking), ChatFormat(LightTokenizer(folder), thinking)


def same(heavy: ChatFormat, light: ChatFormat) -> None:
    assert light.opening(CHAT) == heavy.opening(CHAT)
    for closed in (True, False):
        assert light.following(NEXT, closed) == heavy.following(NEXT, closed)
    assert (light.stop_ids, light.control_texts, light.reply_opening) == (
        heavy.stop_ids,
        heavy.control_texts,
        heavy.reply_opening,
    )
    ids = [*heavy.opening(NEXT), *heavy.stop_ids]
    assert light.text(ids) == heavy.text(ids)
    assert set(light.tokenizer.all_special_ids) == set(heavy.tokenizer.all_special_ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_papers_templates_render_as_with_transformers(family: str, tmp_path: Path) -> None:
    template, thinking = FAMILIES[family]
    family_tokenizer(template).save_pretrained(tmp_path)
    same(*both(tmp_path, thinking))


def test_the_embedded_policy_is_tokenized_as_with_transformers() -> None:
    same(*both(Path("data/policies/embedded"), None))


def test_a_template_inside_the_settings_as_older_folders_have_it(tmp_path: Path) -> None:
    family_tokenizer("qwen2.5").save_pretrained(tmp_path)
    template = (tmp_path / "chat_template.jinja").read_text()
    (tmp_path / "chat_template.jinja").unlink()
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings |= {"chat_template": [{"name": "default", "template": template}], "pad_token": OBJECT}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert LightTokenizer(tmp_path).chat_template == template
    same(*both(tmp_path, None))


def test_what_can_not_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"tokenizer\.json is not there"):
        LightTokenizer(tmp_path)
    family_tokenizer("llama-3.2").save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no system role') }}")
    with pytest.raises(ChatFormatError, match="no system role"):
        ChatFormat(LightTokenizer(tmp_path))

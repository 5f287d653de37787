"""The tokenizer and chat template of a policy folder without transformers, for environments without torch.

It gives the ids and texts that transformers' fast tokenizers give, and has the part of their interface that
`ChatFormat` uses.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from r3l.system.packages import install_command

NAMED = ("bos_token", "eos_token", "pad_token", "unk_token")


class LightTokenizer:
    """Of a folder with ``tokenizer.json``. Raises `OSError` where it has none, `ValueError` where a file can't be
    read."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            way_out = install_command(["trainer"])
            raise OSError(f"{path} is not there; without transformers r3l needs a tokenizer.json ({way_out})")
        self.backend = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        self.backend.no_padding()
        self.backend.no_truncation()
        settings = _json(folder / "tokenizer_config.json")
        self.named = {name: _text(settings.get(name)) for name in NAMED}
        self.chat_template = _template(folder, settings)
        extra = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or []
        self._mark_special([_text(token) for token in extra])

    @property
    def bos_token(self) -> str | None:
        return self.named["bos_token"]

    @property
    def eos_token(self) -> str | None:
        return self.named["eos_token"]

    @property
    def pad_token(self) -> str | None:
        return self.named["pad_token"]

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Id to added token: `content`, `special`."""
        return dict(self.backend.get_added_tokens_decoder())

    @property
    def all_special_ids(self) -> list[int]:
        ids = [self.backend.token_to_id(token) for token in self.special if token]
        return [id_ for id_ in ids if id_ is not None]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(
        self, ids: Sequence[int], skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        """Decode ids. Raise `ValueError` for the clean-up of blanks, which loses what was sampled."""
        if clean_up_tokenization_spaces:
            raise ValueError("clean_up_tokenization_spaces: expected false, the text would not be what was sampled")
        return str(self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def apply_chat_template(
        self,
        messages: Sequence[dict[str, str]],
        tokenize: bool = False,
        add_generation_prompt: bool = False,
        **options: Any,
    ) -> str:
        """Render the conversation as text. Raise jinja2's `TemplateError` where the template refuses it."""
        if tokenize or not self.chat_template:
            raise ValueError("expected tokenize=False and a tokenizer with a chat template")
        role_tokens = {name: token for name, token in self.named.items() if token is not None}
        return str(
            _compiled(self.chat_template).render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                **{"tools": None, "documents": None, **role_tokens, **options},
            )
        )

    def _mark_special(self, extra: list[str | None]) -> None:
        """Mark the named tokens as special, whatever the tokenizer's file says, as transformers does."""
        self.special = [token for token in dict.fromkeys([*self.named.values(), *extra]) if token]
        self.backend.add_special_tokens(self.special)


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    """Compile a template once: it takes ten times as long as rendering."""
    return _environment().from_string(template)


def _environment() -> ImmutableSandboxedEnvironment:
    """Make the sandbox in which templates run: they are untrusted, and see only the functions that the model families'
    templates call."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Write JSON without Jinja's escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several by name
        template = {one["name"]: one["template"] for one in template}.get("default")
    return template if isinstance(template, str) else None


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _text(token: Any) -> str | None:
    """Read the text of a token, which is a text or an object with `content`."""
    return token.get("content") if isinstance(token, dict) else token

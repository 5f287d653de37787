"""Text of models and environments, made safe to look at: what can't be seen, or would act, is shown as a visible mark.

Escaping for HTML is the templates' work; this is what escaping leaves: terminal codes, direction marks, invisible characters.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

KEPT = {"\n", "\t", "\u200c", "\u200d"}  # joiners: several scripts and emoji can't be written without them
HEAD, TAIL = 6_000, 1_000


def mark(character: str) -> str:
    """The visible stand-in: its code point, in brackets that every font has."""
    return f"⟨U+{ord(character):04X}⟩"


def acts(character: str) -> bool:
    """Whether a character is a control, a direction mark, a line separator or invisible."""
    return character not in KEPT and unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: str) -> str:
    """The same text with every character that would act or hide replaced by its mark."""
    harmful = {character for character in set(text) if acts(character)}
    return text.translate({ord(character): mark(character) for character in harmful}) if harmful else text


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning and the end of a text, and how many characters between them are not shown."""

    head: str
    hidden: int
    tail: str


def excerpt(text: str, head: int = HEAD, tail: int = TAIL) -> Excerpt:
    """A text for a page: whole where it is short. A hidden middle of a few characters is not worth hiding."""
    if len(text) <= head + 2 * tail:
        return Excerpt(visible(text), 0, "")
    return Excerpt(visible(text[:head]), len(text) - head - tail, visible(text[-tail:]))


def shortened(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text[: limit + 1].split()) if len(text) <= limit else text[:limit].replace("\n", " ") + "…"
    return visible(line)

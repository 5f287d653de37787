"""Text of models and environments, made safe to show: invisible characters and control codes become visible marks.

Escaping for HTML is the templates' work; this is what escaping leaves: terminal codes, direction marks, invisible
characters.
"""

import json
import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

from r3l.system.visible import visible

HEAD, TAIL = 6_000, 1_000


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning and the end of a text, and how many characters between them are not shown."""

    head: str
    hidden: int
    tail: str


def excerpt(text: str, head: int = HEAD, tail: int = TAIL) -> Excerpt:
    """Cut a text for a page: whole where it is short. A hidden middle of a few characters is not worth hiding."""
    if len(text) <= head + 2 * tail:
        return Excerpt(visible(text), 0, "")
    return Excerpt(visible(text[:head]), len(text) - head - tail, visible(text[-tail:]))


def both_ends(text: str, limit: int) -> str:
    """Cut a text to one line of at most `limit` characters: the beginning and the end of a longer one."""
    half = limit // 2
    return shorten(text, limit) if len(text) <= limit else visible(f"{text[: half - 1]}…{text[-half:]}")


def shorten(text: str, limit: int) -> str:
    """Cut a text to one line of at most `limit` characters."""
    line = " ".join(text[: limit + 1].split()) if len(text) <= limit else text[:limit].replace("\n", " ") + "…"
    return visible(line)


def report_fields(report: str) -> list[tuple[str, str]]:
    """Read the report's fields as text, nested ones as JSON; none where they can't be shown, as of an invalid
    report."""
    try:
        fields = json.loads(report or "{}")
        pairs = [
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for name, value in fields.items()
        ]
        "".join(name + value for name, value in pairs).encode()
    except (AttributeError, RecursionError, ValueError):  # no object, nested too deep, no JSON or half a surrogate pair
        return []
    return [(name.replace("_", " "), value) for name, value in pairs]


LONGEST = 2_000  # characters; two longer texts are shown without marks, as the comparison costs their product
WORD = re.compile(r"\s+|\w+|[^\w\s]")


class Span(NamedTuple):
    """A piece of a text, and whether the other text lacks it."""

    text: str
    own: bool


def word_difference(before: str, after: str) -> tuple[list[Span], list[Span]] | None:
    """Split both texts into spans, which joined give the texts again; None where they are equal or too long to
    compare."""
    if before == after or max(len(before), len(after)) > LONGEST:
        return None
    ours, theirs = WORD.findall(before), WORD.findall(after)
    blocks = [(0, 0, 0), *SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()]
    left, right = [], []
    for (a, b, size), (next_a, next_b, _) in pairwise(blocks):
        left += [Span("".join(ours[a : a + size]), False), Span("".join(ours[a + size : next_a]), True)]
        right += [Span("".join(theirs[b : b + size]), False), Span("".join(theirs[b + size : next_b]), True)]
    return [span for span in left if span.text], [span for span in right if span.text]

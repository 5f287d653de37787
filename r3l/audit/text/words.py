"""A word diff: the words of each text that the other one lacks at that place."""

import re
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

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

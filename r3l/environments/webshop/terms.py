"""The index terms of a text, as Lucene's English analyzer gives them: its StandardTokenizer, no possessive s, lower
case, no stop words, Porter stems.

The tokenizer follows the word boundaries of UAX #29 (Unicode Text Segmentation) by the Unicode properties that the
library `regex` knows, with what Lucene adds to them: an ideograph and a hiragana letter are words of their own, letters
of South East Asian scripts stay together, full-width digits are digits, an emoji sequence (UTS #51) is a word. Other
symbols are in no word.
"""

import re
from functools import lru_cache
from typing import Any

from r3l.system.packages import import_package

COMMON_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
    "they this to was will with"
)
STOP_WORDS = frozenset(COMMON_WORDS.split())
POSSESSIVE = re.compile(r"['’＇]s$", re.IGNORECASE)
# Where Lucene's stemmer differs from the published one: -bly counts as -ble and -logy as -log behind a whole syllable,
# and any doubled consonant but l, s, z is made single before -ed and -ing.
AMENDMENTS = [
    (re.compile(r"([aeiouy][^aeiouy].*)bl[yi]$"), r"\1ble"),
    (re.compile(r"([aeiouy][^aeiouy].*)log(?:y|i|ies)$"), r"\1log"),
    (re.compile(r"(?<=[aeiouy])([cjkqvwx])\1(?:ed|ing)$"), r"\1"),
]

# Lucene's tokenizer has the properties of Unicode 12.1. What later versions made letters, and what they
# took from the pictographs (stars, notes, chess pieces, cards), counts as it did then.
LATER_LETTERS = r"\u00B8\u02E5-\u02EB\u055A\u058A-\u058C\uA708-\uA716"
FORMER_PICTOGRAPHS = (
    r"\u2388\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2763-\u2767\U0001F000-\U0001F0FF"
    r"\U0001F10D-\U0001F10F\U0001F12F\U0001F16C-\U0001F171\U0001F1AD-\U0001F53D\U0001F546-\U0001F64F"
    r"\U0001F680-\U0001F6FF\U0001F774-\U0001F77F\U0001F7D5-\U0001F7FF\U0001F80C-\U0001F80F\U0001F848-\U0001F84F"
    r"\U0001F85A-\U0001F85F\U0001F888-\U0001F88F\U0001F8AE-\U0001F93A\U0001F93C-\U0001F945\U0001F947-\U0001FFFD"
)
# Rule WB4: whatever extends a character belongs to it.
EXTENDERS = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*+"


def with_variants(characters: str) -> str:
    return f"(?:{characters}{EXTENDERS})"


LETTER = rf"[[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]--[{LATER_LETTERS}]]"
HEBREW = r"\p{WB=Hebrew_Letter}"
DIGIT = r"[\p{WB=Numeric}[\p{Block=Halfwidth_And_Fullwidth_Forms}&&\p{Nd}]]"
IN_WORDS = with_variants(r"[\p{WB=MidLetter}\p{WB=MidNumLet}\p{WB=Single_Quote}]")
IN_NUMBERS = with_variants(r"[\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}]")
QUOTE, DOUBLE_QUOTE = with_variants(r"\p{WB=Single_Quote}"), with_variants(r"\p{WB=Double_Quote}")
UNDERSCORE = with_variants(r"\p{WB=ExtendNumLet}")
KATAKANA, FLAG_HALF = with_variants(r"\p{WB=Katakana}"), with_variants(r"\p{WB=Regional_Indicator}")
SOUTH_EAST_ASIAN = with_variants(r"\p{Line_Break=Complex_Context}")
IDEOGRAPH, HIRAGANA = with_variants(r"\p{Script=Han}"), with_variants(r"\p{Script=Hiragana}")
RUN = rf"""(?:{KATAKANA}++
    |(?:{with_variants(HEBREW)}(?:{DOUBLE_QUOTE}(?={HEBREW})|{IN_WORDS}(?={LETTER})|{QUOTE})?+
       |{with_variants(LETTER)}(?:{IN_WORDS}(?={LETTER}))?+
       |{with_variants(DIGIT)}(?:{IN_NUMBERS}(?={DIGIT}))?+)++)"""
PICTOGRAPH = (
    rf"[[\p{{Extended_Pictographic}}\p{{Emoji}}{FORMER_PICTOGRAPHS}]"
    r"--[\p{WB=Regional_Indicator}0-9#*\p{Emoji_Modifier}]]"
)
JOINS = rf"\u200D(?=\u200D*(?:{PICTOGRAPH}|\p{{Emoji_Modifier}}))"  # a joiner before a pictograph joins two of them
UNSELECTED = (
    r"[[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]--[\uFE0E\uFE0F]]"  # without the selectors of text or emoji presentation
)
BESIDES = rf"(?:(?!{JOINS}){UNSELECTED})*+"
EMOJI = rf"(?:\u200D*{PICTOGRAPH}{BESIDES}\uFE0F?|\p{{Emoji_Modifier}}{BESIDES})"
KEYCAP = rf"[\#*](?:(?!\u20E3){UNSELECTED})*+\uFE0F?\u20E3{UNSELECTED}*+"  # a digit's keycap is a number
PLAIN = r"[A-Za-z0-9]++(?=[\ !()/\-]|\Z)"  # what most words are: found twice as fast so
TOKEN = rf"""(?xV1)
    {PLAIN}
    |{UNDERSCORE}*+{RUN}(?:{UNDERSCORE}++{RUN})*+{UNDERSCORE}*+
    |{EMOJI}(?:[\U000E0020-\U000E007E]++\U000E007F|(?:\u200D{EMOJI})*+)
    |{KEYCAP}
    |{FLAG_HALF}{{2}}
    |{SOUTH_EAST_ASIAN}++
    |{IDEOGRAPH}
    |{HIRAGANA}"""


def tokens(text: str) -> list[str]:
    """Split a text into words, in order. Raise `WorldError` where the libraries of the search are not installed."""
    words: list[str] = tokenizer().findall(text)
    return words


@lru_cache(maxsize=1)
def tokenizer() -> Any:
    return import_package("regex", "webshop").compile(TOKEN)


def terms(text: str) -> list[str]:
    words = (POSSESSIVE.sub("", word).lower() for word in tokens(text))
    return [stem(word) for word in words if word not in STOP_WORDS]


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """Stem a word as Lucene's Porter stemmer does. The library's is the published algorithm; `AMENDMENTS` are the
    rest."""
    if len(word) <= 2:
        return word
    for pattern, replacement in AMENDMENTS:
        word = pattern.sub(replacement, word)
    return str(stemmer().stemWord(word))


@lru_cache(maxsize=1)
def stemmer() -> Any:
    return import_package("snowballstemmer", "webshop").stemmer("porter")

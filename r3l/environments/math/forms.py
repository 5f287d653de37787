"""The forms of an answer that math-verify misreads, brought into those that it reads: ``½`` to ``\\frac{1}{2}``.

`FORMS` is the table: what is looked for, what takes its place, an example. Each row is there because math-verify 0.9
reads its example as nothing or, worse, as the number at its front (``2√3`` as 2). What an equation and an interval, or
a decimal and a fraction, have in common is said when the two are compared (`EQUAL`), and of percentages in `as_gold`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

# Arguments of math-verify's `verify`. An inequality is the set of its solutions. A number in decimals is that number to
# the 12th place, so that 0.3333333 is not 1/3.
EQUAL = {"allow_set_relation_comp": True, "float_rounding": 12}

NUMBER = r"(?<![\d.,])[-+]?[\d.][\d.,]*+"
CURRENCY = r"(?:US|U\.S\.)?\s*(?:dollars?|euros?|USD|EUR)"
PERCENT = re.compile(rf"({NUMBER})\s*(?:\\?%|percent\b|per\s+cent\b|\\text\s*\{{\s*percent\s*\}})", re.IGNORECASE)


def plain_fraction(match: re.Match[str]) -> str:
    """Return ½ as ``\\frac{1}{2}``, by the character's decomposition in Unicode."""
    above, _, below = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return rf"\frac{{{above}}}{{{below}}}" if below else match[0]


def raised(match: re.Match[str]) -> str:
    return f"^{{{unicodedata.normalize('NFKC', match[0]).replace('−', '-')}}}"


def scientific(match: re.Match[str]) -> str:
    return rf"{match[1]} \times 10^{{{int(match[2])}}}"


Form = tuple[str, str | Callable[[re.Match[str]], str], str]
FORMS: list[Form] = [
    (r"\\[()\[\]]|\\?\$", "", r"\$5"),
    (r"^\s*(\*\*|__|\*|`)(.+)\1\s*$", r"\2", "**14**"),
    (r"\*\*", "^", "x**2"),
    (r"\s+", " ", "x +\n1"),
    (r"^ | ?(?<!\.)\.*+ ?$", "", "14."),
    (rf"^(?:USD|EUR|€|£) ?(?={NUMBER})", "", "€5"),
    (rf"(?<=\d) ?(?:€|£|{CURRENCY})$", "", "5 dollars"),
    (r"(?<![\w.])([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d+)(?![\w.])", scientific, "4.5e33"),
    (r"^([-+]?\d+) (\d+)/(\d+)$", r"\1\\frac{\2}{\3}", "1 1/2"),
    (r"[¼-¾⅐-⅞↉]", plain_fraction, "½"),
    (r"[⁰¹²³⁴-⁹⁺⁻ⁿ]+", raised, "x²"),
    (r"∛ ?(\d+|\w)", r"\\sqrt[3]{\1}", "∛2"),
    (r"√ ?\(([^()]*)\)", r"\\sqrt{\1}", "√(x+1)"),
    (r"√ ?(\d+(?:\.\d+)?|\w)", r"\\sqrt{\1}", "2√3"),
    (r"√", r"\\sqrt", "√{3}"),
    (r"∞", r"\\infty ", "(−∞, 3]"),
    (r"−", "-", "(−∞, 3]"),
    (r"∈", r"\\in ", "x∈[2,5)"),
    (r"[·⋅]", r"\\cdot ", "3·4"),
    (r"⁄", "/", "3⁄4"),
]
COMPILED = [(re.compile(pattern), replacement) for pattern, replacement, _ in FORMS]


def formula(text: str) -> str:
    r"""Mark a text as one formula for math-verify, which would read bare ``3\sqrt{2}`` as 3."""
    for pattern, replacement in COMPILED:
        text = pattern.sub(replacement, text)
    return f"${text}$"


def as_gold(gold: str, answer: str) -> str:
    """Return the gold answer that `answer` is held against. A percentage is one: 12 is not 12 %, 0.12 and 12 % are.
    Where the gold answer has no percent sign either is right, for the public sets leave the sign of a percentage out.
    """
    return gold if PERCENT.search(answer) else PERCENT.sub(r"\\frac{\1}{100}", gold)

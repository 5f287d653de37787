"""The forms of an answer that math-verify misreads, brought into those that it reads: ``½`` to ``\\frac{1}{2}``.

`FORMS` is the table: what is looked for, what takes its place, an example. Each row is there because math-verify 0.9
reads its example as nothing or as something else. Percentages are the matter of `as_gold`.
"""

import re
import unicodedata
from collections.abc import Callable

NUMBER = r"(?<![\d.,])[-+]?[\d.][\d.,]*+"
FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp|lim|max|min|gcd"
CURRENCY = r"(?:US|U\.S\.)?\s*(?:dollars?|euros?|USD|EUR)"
PERCENT = re.compile(rf"({NUMBER})\s*(?:\\?%|percent\b|per\s+cent\b|\\text\s*\{{\s*percent\s*\}})", re.IGNORECASE)


def plain_fraction(match: re.Match[str]) -> str:
    r"""Write ½ as ``\frac{1}{2}``, by the character's decomposition in Unicode."""
    above, _, below = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return rf"\frac{{{above}}}{{{below}}}" if below else match[0]


def power_text(match: re.Match[str]) -> str:
    return f"^{{{unicodedata.normalize('NFKC', match[0]).replace('−', '-')}}}"


def scientific(match: re.Match[str]) -> str:
    return rf"{match[1]} \times 10^{{{int(match[2])}}}"


def repeating(match: re.Match[str]) -> str:
    r"""Write ``0.1\overline{6}`` as the fraction that it is: 1/10 + 6/90."""
    sign, whole, fixed_digits, again = match[1], match[2] or "0", match[3], match[4] or match[5]
    below = (10 ** len(again) - 1) * 10 ** len(fixed_digits)
    above = int(whole + fixed_digits + again) - int(whole + fixed_digits)
    return rf"{sign}\frac{{{above}}}{{{below}}}"


Form = tuple[str, str | Callable[[re.Match[str]], str], str]
FORMS: list[Form] = [
    (r"[\uff01-\uff5e]", lambda match: unicodedata.normalize("NFKC", match[0]), "５"),
    (r"\\[()\[\]]|\\?\$", "", r"\$5"),
    (r"^\s*(\*\*|__|\*|`)(.+)\1\s*$", r"\2", "**14**"),
    (r"\*\*", "^", "x**2"),
    (r"\s+", " ", "x +\n1"),
    (r"(?<=\d)(?:\\[ ,;:!]|[~\u00a0\u2009\u202f]|\{,\})(?=\d{3}(?!\d))", "", r"10\,000"),
    (r"^([-+]?\d{1,3})((?: \d{3})+)(?=(?:\.\d+)?$)", lambda match: match[1] + match[2].replace(" ", ""), "10 000"),
    (
        r"([-+]?)(?<![\d.])(\d*)\.(\d*)(?:\\(?:overline|bar|dot) ?(?:\{(\d+)\}|(\d)))(?![\d\\])",
        repeating,
        r"0.\overline{3}",
    ),
    (rf"\\(?:operatorname|mathrm|text|mathop)\*? ?\{{ ?({FUNCTIONS}) ?\}}", r"\\\1 ", r"2\operatorname{ln}3"),
    (r"\\varnothing", r"\\emptyset", r"\varnothing"),
    (r"\\sqrt ?\(([^()]*)\)", r"\\sqrt{\1}", r"4\sqrt(2)"),
    (r"(?<=[A-Za-z])'+", lambda match: f"_{{{'prime' * len(match[0])}}}", "f'"),
    (r"\\+$", "", "185\\"),
    (r"°", r"^\\circ ", "45°"),
    (r"^ | ?(?<!\.)\. ?$", "", "14."),
    (r"\^ ?([-+]\d+)", r"^{\1}", "10^-34"),
    (r"\\log ?_ ?(\w)", r"\\log_{\1}", r"\log_2 8"),
    (rf"^(?:USD|EUR|€|£) ?(?={NUMBER})", "", "€5"),
    (rf"(?<=\d) ?(?:€|£|{CURRENCY})$", "", "5 dollars"),
    (r"(?<![\w.])([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d+)(?![\w.])", scientific, "4.5e33"),
    (r"^([-+]?\d+) (\d+)/(\d+)$", r"\1\\frac{\2}{\3}", "1 1/2"),
    (r"[¼-¾⅐-⅞↉]", plain_fraction, "½"),
    (r"[⁰¹²³⁴-⁹⁺⁻ⁿ]+", power_text, "x²"),
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
    """Write a text in the forms that math-verify reads."""
    for pattern, replacement in COMPILED:
        text = pattern.sub(replacement, text)
    return text.strip()


def as_gold(gold: str, answer: str) -> str:
    """Write the gold answer that `answer` is held against. A percentage is one: 12 is not 12 %, 0.12 and 12 % are."""
    return gold if PERCENT.search(answer) else PERCENT.sub(r"\\frac{\1}{100}", gold)

"""An answer as a mathematical object, and whether two are equal: math-verify's grammar and comparison, made strict.

The whole text is read or nothing is: math-verify's own search takes the number at the front or the end of what it can't
read for the answer. Numbers are compared by their relative difference, exact ones exactly: its comparison rounds to a
place behind the point, so that all tiny numbers are equal.
"""

import re
from typing import Any

from r3l.environments.math.forms import as_gold, formula
from r3l.environments.math.units import same_unit, without_unit

CLOSE = 1e-12  # relative difference of numbers one of which is in decimals, so that 0.3333333 is not 1/3
DIGITS = 60  # to which exact numbers are held against each other before algebra is asked
# What latex2sympy drops or takes for a sum, a product or a point, and is none.
ILLEGIBLE = re.compile(
    r"\\(?:[lc]|h|v|d)?dots\b|…|\.\.\.|\d(?:\s|\\[ ,;:!]|~)+\d|\d\.\d*\.|(?<=[\d.])\\overline|\\dot\b|\?|[=+*/^_-]\s*$"
    r"|\d\s*(?:_|')"
)
WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*\{([^{}]*)\}")


class Unreadable(ValueError):
    """No mathematics, or some with a rest."""


def same(gold: str, answer: str) -> bool:
    """Tell whether two answers are equal. A gold answer that is no mathematics is held to its text.

    Raises:
        Unreadable: the answer is no mathematics.
    """
    if as_text(gold) == as_text(answer) != "":
        return True
    (gold, gold_unit), (answer, unit) = without_unit(formula(as_gold(gold, answer))), without_unit(formula(answer))
    answer_object = read(answer)
    try:
        gold_object = read(gold)
    except Unreadable:
        return False
    return same_unit(gold_unit, unit) and equal(gold_object, answer_object)


def as_text(answer: str) -> str:
    r"""Write the words of an answer in one spelling: ``\text{Monday}.`` is monday."""
    bare = re.sub(r"(?<!\.)\. *$", "", WORDS.sub(r"\1", answer).strip(" $"))  # .5 is not 5, nor 0.333... 0.333
    return " ".join(bare.strip(" $").split()).casefold()


def readable(gold: str) -> bool:
    try:
        read(without_unit(formula(gold))[0])
    except Unreadable:
        return False
    return True


def read(text: str) -> Any:
    """Parse the object that the whole text stands for.

    Raises:
        Unreadable: it stands for none.
    """
    from latex2sympy2_extended.latex2sympy2 import latex2sympy
    from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
    from math_verify.parser import get_last_eq
    from sympy import I, Symbol

    if not text.strip() or ILLEGIBLE.search(text):
        raise Unreadable("no mathematics in it")
    # Units are none of its business: it knows too many (`r3l.environments.math.units`).
    config = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none")
    latex = normalize_latex(text, config)
    cause: Exception | None = None
    for part in dict.fromkeys((latex, get_last_eq(latex))):  # a = b = 3 is 3
        try:
            parsed_object = latex2sympy(part, is_real=True, normalization_config=None)
        except Exception as error:  # noqa: BLE001 - its grammar and its conversion raise anything
            cause = error
            continue
        units = {Symbol("i", real=True): I} if hasattr(parsed_object, "subs") else {}
        return (
            parsed_object.subs(units) if units.keys() & getattr(parsed_object, "free_symbols", set()) else parsed_object
        )
    raise Unreadable("no mathematics in it") from cause


def equal(gold: Any, answer: Any) -> bool:
    """Tell whether two objects are equal, their numbers by `same_number` at any depth."""
    from math_verify import grader

    # The elements of sets, tuples, intervals and matrices are compared by functions that look this one up.
    grader.sympy_numeric_eq = same_number
    return bool(grader.verify([gold], [answer], allow_set_relation_comp=True, timeout_seconds=None))


def same_number(gold: Any, answer: Any, *_: Any) -> bool:
    """Tell whether two objects without a variable are the same number; False where algebra has to say it."""
    from sympy import MatrixBase

    if isinstance(gold, MatrixBase) or isinstance(answer, MatrixBase):
        shapes = [one.doit().shape if isinstance(one, MatrixBase) else () for one in (gold, answer)]
        return shapes[0] == shapes[1] and all(map(same_number, gold.doit(), answer.doit()))
    pairs = [(gold, answer)]
    shares = [percentage(one) for one in (gold, answer)]
    if (shares[0] is None) != (shares[1] is None):  # where one side has no percent sign either is right
        pairs.append((gold, shares[1]) if shares[0] is None else (shares[0], answer))
    return any(close(a.doit(), b.doit()) for a, b in pairs)


def percentage(number: Any) -> Any:
    from math_verify.grader import get_pct_val

    return get_pct_val(number)


def close(a: Any, b: Any) -> bool:
    from sympy import Float, Rational

    if a.free_symbols or b.free_symbols:
        return False
    if isinstance(a, Rational) and isinstance(b, Rational):
        return bool(a == b)
    exact = not (a.has(Float) or b.has(Float))
    places = DIGITS if exact else 20
    x, y = a.evalf(places), b.evalf(places)
    most = max(abs(x), abs(y))
    if not (x.is_number and y.is_number and x.is_finite and y.is_finite):
        return False
    if not exact:
        return bool(abs(x - y) <= CLOSE * most)
    return bool(a == b) or (bool(abs(x - y) <= 10 ** -(places - 20) * most) and (a - b).equals(0) is not False)

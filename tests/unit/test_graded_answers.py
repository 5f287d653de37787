"""The grader on the cases of public graders' tests, and on our own. None is accepted wrongly; what is refused against
the public verdict is listed with its reason."""

import json
from pathlib import Path

import pytest

from r3l.environments.math.reading import Unreadable, same

# Gold answer, answer, and whether they are the same: the cases of two public graders' tests, brought to the bare answer
# that a policy gives here, and our own, of the kinds that graders get wrong.
CASES = json.loads((Path(__file__).parents[1] / "golden/graded_answers.json").read_text(encoding="utf-8"))

# Right by the public verdict, and refused here.
REFUSED = {
    "a comma before two digits parts a list": [("1000.99", "1000,99"), ("1,22", "1.22")],
    "28 % is 28 % or 0.28, not 28": [("28\\%", "28"), ("10%", "10"), ("10\\%", "10")],
    "decimals are exact to the 12th digit": [
        (
            "(\\begin{pmatrix}\\frac{1}{3}\\\\ \\frac{1}{5} \\end{pmatrix})",
            "\\begin{pmatrix}0.33\\\\0.2 \\end{pmatrix}",
        ),
        ("(\\frac{3}{5},\\frac{8}{3}]", "(0.6,2.6667]"),
    ],
    "one of several answers": [
        ("1,-2", "1"), ("(2,1),(1,2),(-1,-20),(-20,-1)", "(-20, -1)"), ("2", "1,2"), ("-2", "-2,1"), ("10455", "255"),
    ],
    "the letter of a choice with its text": [("C", "C. x = 42"), ("C. x = 42", "C")],
    "a gold answer cut off": [("\\\\boxed{W(n) = 1 \\\\text{ and } W(n) = -1", "W(x)=1orW(x)=-1")],
}  # fmt: skip


def verdict(gold: str, answer: str) -> bool:
    try:
        return same(gold, answer)
    except Unreadable:
        return False


@pytest.mark.parametrize(("gold", "answer", "right"), CASES["own"])
def test_an_answer_is_read_whole_and_numbers_are_held_by_their_digits(gold, answer, right):
    assert verdict(gold, answer) is right


@pytest.mark.parametrize("name", [pytest.param("math-verify", marks=pytest.mark.slow), "nemo-skills"])
def test_the_verdicts_of_public_graders_but_for_those_that_are_listed(name):
    cases = CASES[name]
    verdicts = [(gold, answer, right, verdict(gold, answer)) for gold, answer, right in cases]
    accepted = [(gold, answer) for gold, answer, right, given in verdicts if given and not right]
    refused = [(gold, answer) for gold, answer, right, given in verdicts if right and not given]
    agreed = len(cases) - len(accepted) - len(refused)
    print(f"{name}: {agreed} of {len(cases)} agreed, {len(accepted)} wrongly accepted, {len(refused)} refused")
    assert accepted == []
    assert sorted(refused) == sorted(
        case for listed in REFUSED.values() for case in listed if (*case, True) in [tuple(one) for one in cases]
    )

"""What a row's sum is divided by."""

from collections import Counter

import pytest

from r3l.errors import TrainingError
from r3l.training.gradients import Denominators
from r3l.training.rows import UpdateRow
from tests.support.update_world import record


@pytest.mark.parametrize(("reduction", "term", "expected"), [
    ("groups", "rl", 4.0),
    ("tokens", "rl", 50.0),
    ("tokens", "sft", 9.0),
    ("sum", "sft", 1.0),
    ("groups", "sft", 4.0),
])  # fmt: skip
def test_each_reduction_has_its_denominator(reduction, term, expected):
    row = UpdateRow.read(record("g0/base=0", range(2, 6), [0.0, 0.0, 1.0, 1.0], reduction=reduction, term=term))
    assert Denominators(4, Counter(rl=50, sft=9)).of(row) == expected


def test_an_unknown_reduction_lists_those_that_exist():
    row = UpdateRow.read(record("g0/base=0", range(2, 6), [0.0, 0.0, 1.0, 1.0], reduction="mean"))
    with pytest.raises(TrainingError, match=r"reduction 'mean' is unknown; expected one of groups, tokens, sum"):
        Denominators(1, Counter()).of(row)

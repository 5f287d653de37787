"""Drawing tokens: by the inverse of the cumulative distribution, with numbers worked out by hand."""

import math
import random
from collections import Counter

import pytest
import torch

from r3l.engines.embedded.sampling import draw
from r3l.errors import EngineError

LOGITS = torch.tensor([[math.log(0.5), math.log(0.25), -math.inf, math.log(0.25)]])


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 0), (0.49, 0), (0.51, 1), (0.74, 1), (0.76, 3), (0.999999999, 3)])
def test_the_uniform_number_picks_the_token(uniform: float, token: int) -> None:
    tokens, logprobs = draw(LOGITS, [1.0], [uniform])
    assert tokens == [token]
    assert logprobs == pytest.approx([math.log(0.5 if token == 0 else 0.25)])


def test_temperature_shapes_the_draw_but_not_the_logprob() -> None:
    """At temperature 0.5 the probabilities 1/2, 1/4, 1/4 become 2/3, 1/6, 1/6."""
    tokens, logprobs = draw(LOGITS.expand(2, 4), [0.5, 0.5], [0.66, 0.68])
    assert tokens == [0, 1]
    assert logprobs == pytest.approx([math.log(0.5), math.log(0.25)])


def test_temperature_zero_is_greedy_beside_others() -> None:
    tokens, _ = draw(LOGITS.expand(2, 4), [0.0, 1.0], [0.99, 0.99])
    assert tokens == [0, 3]


def test_what_is_not_allowed_is_not_drawn_and_the_logprob_is_of_the_whole_distribution() -> None:
    allowed = torch.tensor([[False, True, False, True]])
    for uniform, token in ((0.49, 1), (0.51, 3)):
        tokens, logprobs = draw(LOGITS, [1.0], [uniform], allowed)
        assert tokens == [token]
        assert logprobs == pytest.approx([math.log(0.25)])
    assert draw(LOGITS, [0.0], [0.9], allowed)[0] == [1]


def test_frequencies_are_the_probabilities() -> None:
    chance = random.Random(0)
    drawn = Counter(draw(LOGITS.expand(20_000, 4), [1.0] * 20_000, [chance.random() for _ in range(20_000)])[0])
    assert [drawn[token] / 20_000 for token in range(4)] == pytest.approx([0.5, 0.25, 0, 0.25], abs=0.01)


def test_logits_that_are_no_numbers_are_named() -> None:
    for broken in (math.nan, math.inf):
        logits = torch.cat([LOGITS, torch.full((1, 4), broken)])
        for temperature in (0.0, 1.0):
            with pytest.raises(EngineError, match="no probabilities but NaN"):
                draw(logits, [temperature] * 2, [0.5] * 2)

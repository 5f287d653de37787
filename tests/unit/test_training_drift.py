"""Steps that are shortened by their drift, and what the drift is measured on."""

import math

import numpy as np
import pytest

from r3l.training.stepping.drift import AIM, Sampled, bound_step, choose


def attempt(name: str, pushes: list[float]) -> Sampled:
    positions = np.arange(3, 3 + len(pushes))
    return Sampled(name, np.arange(3 + len(pushes)), positions, np.array(pushes))


def test_a_first_step_four_times_too_long_in_drift_is_halved() -> None:
    """KL = 4 share^2 against a bound of 1: sqrt(1/4) = 1/2, a little less by the aim; 4 x 0.95/4 = 0.95."""
    taken = bound_step(lambda share: 4 * share**2, allowed=1.0, before=0.0)
    assert taken.asked == 4.0
    assert taken.share == pytest.approx(0.5 * math.sqrt(AIM))
    assert taken.drift == pytest.approx(0.95)


def test_a_step_within_the_bound_is_taken_whole_and_measured_once() -> None:
    measured: list[float] = []

    def drift_at(share: float) -> float:
        measured.append(share)
        return 0.5

    assert bound_step(drift_at, allowed=0.5, before=0.2) == (0.5, 0.5, 1.0)
    assert measured == [1.0]


@pytest.mark.parametrize("drift_at", [lambda s: 0.3 + s + 9 * s**3, lambda s: math.inf if s > 0.05 else 0.3 + s])
def test_what_is_no_parabola_is_measured_again_until_it_holds(drift_at) -> None:
    taken = bound_step(drift_at, allowed=0.5, before=0.3)
    assert 0 < taken.share < 1
    assert taken.drift == drift_at(taken.share) <= 0.5


def test_a_step_that_never_holds_is_taken_back() -> None:
    shares: list[float] = []
    taken = bound_step(lambda share: shares.append(share) or math.inf, allowed=1.0, before=0.4)
    assert (taken.drift, taken.share, shares[-1]) == (0.4, 0.0, 0.0)


def test_only_what_no_loss_pushes_is_measured() -> None:
    chosen, instead = choose([attempt("a", [0, 0, 0.5, 0.1]), attempt("b", [0.2, 0.2])], "seed", 50)
    assert (chosen[0].positions.tolist(), chosen[0].token_ids.tolist(), len(chosen), instead) == (
        [3, 4],
        [0, 1, 2, 3, 4],
        1,
        "",
    )


def test_without_neutral_tokens_the_least_pushed_attempts_stand_in() -> None:
    chosen, instead = choose([attempt(f"{i:02}", [0.01 * (i + 1)] * (i + 1)) for i in range(20)], "seed", 50)
    assert instead == "the loss pushes every reply token of every base"
    assert [len(one.positions) for one in chosen] == list(range(1, 13))


def test_twelve_are_drawn_by_the_seed_and_bounded_in_tokens() -> None:
    attempts = [attempt(f"{i:02}", [0.0] * 600) for i in range(30)]
    first, again, other = (choose(attempts, seed, 50)[0] for seed in ("a", "a", "b"))
    assert [one.token_ids.tolist() for one in first] == [one.token_ids.tolist() for one in again]
    assert len(first) == len(other) == 12
    assert sum(len(one.positions) for one in first) <= 2048
    assert sum(len(one.positions) for one in choose(attempts, "a", 1 << 22)[0]) <= 16

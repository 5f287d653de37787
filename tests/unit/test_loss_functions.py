"""Each loss against numbers worked out by hand, the formula written out naively, and finite differences in float64."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from r3l.losses import ESTIMATORS, LOSSES, RowLoss, kl_penalty

LOGP = torch.tensor([-0.5, -1.0, -2.0, -0.1], dtype=torch.float64)
OLD = torch.tensor([-0.9, -0.9, -1.2, -0.1], dtype=torch.float64)
WEIGHTS = torch.tensor([0.25, 0.25, 0.0, 0.5], dtype=torch.float64)
SETTINGS: dict[str, dict[str, float]] = {
    "policy_gradient": {}, "cross_entropy": {}, "clipped_ratio": {"clip_low": 0.2, "clip_high": 0.28},
    "cispo": {"clip_low": 0.2, "clip_high": 0.28}, "balanced_ratio": {"clip_low": 0.2, "clip_high": 0.28},
    "sequence_ratio": {"clip_low": 0.3, "clip_high": 0.4}, "shaped_ratio": {"gamma": 0.1},
}  # fmt: skip


def run(name: str, advantage: float, logp: Tensor = LOGP, **settings: float) -> RowLoss:
    return LOSSES[name].loss(logp, OLD, advantage, WEIGHTS, **(settings or SETTINGS[name]))


def test_policy_gradient_and_cross_entropy_by_hand() -> None:
    assert run("policy_gradient", 2.0).value.item() == pytest.approx(2.0 * (0.125 + 0.25 + 0.05))
    assert run("cross_entropy", 2.0).value.item() == pytest.approx(0.125 + 0.25 + 0.05)


def test_clipped_ratio_clips_upwards_for_good_and_downwards_for_bad_rows() -> None:
    # ratios e^.4 = 1.4918, e^-.1 = 0.9048, (no weight), 1
    good = run("clipped_ratio", 1.0)
    assert good.value.item() == pytest.approx(-(0.25 * 1.28 + 0.25 * math.exp(-0.1) + 0.5))
    assert (good.ratios, good.clipped) == (3, 1)
    assert good.ratio_sum == pytest.approx(math.exp(0.4) + math.exp(-0.1) + 1)
    bad = run("clipped_ratio", -1.0)
    assert bad.value.item() == pytest.approx(0.25 * math.exp(0.4) + 0.25 * math.exp(-0.1) + 0.5)
    assert bad.clipped == 0
    low = run("clipped_ratio", -1.0, clip_low=0.05, clip_high=0.05)
    assert low.value.item() == pytest.approx(0.25 * math.exp(0.4) + 0.25 * 0.95 + 0.5)
    assert low.clipped == 1


def test_cispo_clips_what_a_token_counts_and_none_loses_its_gradient() -> None:
    """Ratios e^.4 -> 1.28, e^-.1, 1: the gradient of token t is -w_t clip(r_t) A, of the clipped one too."""
    logp = LOGP.clone().requires_grad_()
    loss = run("cispo", 2.0, logp)
    counts = [0.25 * 1.28, 0.25 * math.exp(-0.1), 0.0, 0.5]
    assert torch.autograd.grad(loss.value, logp)[0].tolist() == pytest.approx([-2.0 * count for count in counts])
    assert loss.value.item() == pytest.approx(-2.0 * sum(c * x for c, x in zip(counts, LOGP.tolist(), strict=True)))
    assert (loss.ratios, loss.clipped) == (3, 1)


def test_sequence_ratio_is_one_number_for_all_trained_tokens() -> None:
    ratio = math.exp((0.4 - 0.1 + 0.0) / 3)  # the token without weight does not count
    loss = run("sequence_ratio", 2.0)
    assert loss.value.item() == pytest.approx(-2.0 * ratio * 1.0)
    assert (loss.ratios, loss.clipped, loss.ratio_sum) == (1, 0, pytest.approx(ratio))
    clipped = run("sequence_ratio", 2.0, clip_low=0.01, clip_high=0.02)
    assert (clipped.value.item(), clipped.clipped) == (pytest.approx(-2.0 * 1.02), 1)


def test_sequence_ratio_differs_from_the_token_ratio() -> None:
    gradients = []
    for name in ("sequence_ratio", "clipped_ratio"):
        logp = LOGP.clone().requires_grad_()
        gradients.append(torch.autograd.grad(run(name, 1.0, logp, clip_low=0.9, clip_high=9.0).value, logp)[0])
    sequence, token = gradients
    assert torch.allclose(sequence, -math.exp(0.1) * WEIGHTS)
    assert torch.allclose(token, -(LOGP - OLD).exp() * WEIGHTS)


def test_shaped_ratio_lifts_unlikely_tokens_most() -> None:
    logp = torch.tensor([0.0, math.log(0.1), math.log(0.01), 0.0], dtype=torch.float64, requires_grad=True)
    loss = LOSSES["shaped_ratio"].loss(logp, OLD, 3.0, torch.ones(4, dtype=torch.float64), gamma=0.1)
    assert loss.value.item() == pytest.approx(-3.0 * (1 / 1.1 + 0.5 + 0.01 / 0.11 + 1 / 1.1))
    slope = -torch.autograd.grad(loss.value, logp)[0] / 3.0  # d f / d log p = p gamma / (p + gamma)^2
    assert slope.tolist() == pytest.approx([0.1 / 1.21, 0.01 / 0.04, 0.001 / 0.0121, 0.1 / 1.21])


def test_kl_estimators_by_hand() -> None:
    reference, weights = OLD, WEIGHTS
    d = [-0.4, 0.1, None, 0.0]  # log ref - log pi
    assert kl_penalty(LOGP, reference, weights, "k1").item() == pytest.approx(0.25 * (-d[0]) + 0.25 * (-d[1]))
    assert kl_penalty(LOGP, reference, weights, "k2").item() == pytest.approx(0.25 * 0.08 + 0.25 * 0.005)
    assert kl_penalty(LOGP, reference, weights, "k3").item() == pytest.approx(
        0.25 * (math.exp(-0.4) + 0.4 - 1) + 0.25 * (math.exp(0.1) - 0.1 - 1)
    )


def test_k3_explodes_on_a_token_that_only_the_guidance_made_likely_and_k2_does_not() -> None:
    """log ref - log pi = 12: the slope in log pi is 1 - e^12 for k3 and -12 for k2."""
    slopes = {}
    for estimator in ("k2", "k3"):
        logp = torch.tensor([-12.5], dtype=torch.float64, requires_grad=True)
        penalty = kl_penalty(
            logp, torch.tensor([-0.5], dtype=torch.float64), torch.ones(1, dtype=torch.float64), estimator
        )
        slopes[estimator] = float(torch.autograd.grad(penalty, logp)[0])
    assert slopes == pytest.approx({"k2": -12.0, "k3": 1 - math.exp(12)})


def test_k1_and_k3_are_unbiased_for_the_kl_of_two_distributions() -> None:
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    exact = float((p * (p / q).log()).sum())
    assert kl_penalty(p.log(), q.log(), p, "k1").item() == pytest.approx(exact)
    assert kl_penalty(p.log(), q.log(), p, "k3").item() == pytest.approx(exact)


@pytest.mark.parametrize(
    "name", sorted(LOSSES.keys() - {"sequence_ratio", "cispo"})
)  # behind a stop-gradient: see the tests beside
@pytest.mark.parametrize("advantage", [1.7, -0.6])
def test_gradients_by_finite_differences(name: str, advantage: float) -> None:
    def value(logp: Tensor) -> Tensor:
        return run(name, advantage, logp).value

    assert torch.autograd.gradcheck(value, (LOGP.clone().requires_grad_(),), eps=1e-7, atol=1e-6)


def test_sequence_ratio_gradient_is_that_of_the_sequence_objective() -> None:
    """With equal weights the token form's gradient equals d/dlogp of -A s: finite differences of the plain formula."""
    equal = torch.full((4,), 0.25, dtype=torch.float64)

    def plain(logp: Tensor) -> Tensor:
        return -1.3 * (logp - OLD).mean().exp()

    logp = LOGP.clone().requires_grad_()
    got = torch.autograd.grad(
        LOSSES["sequence_ratio"].loss(logp, OLD, 1.3, equal, clip_low=0.9, clip_high=9.0).value, logp
    )[0]
    step = 1e-6
    expected = [
        (plain(LOGP + step * unit) - plain(LOGP - step * unit)).item() / (2 * step)
        for unit in torch.eye(4, dtype=torch.float64)
    ]
    assert got.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_kl_gradients_by_finite_differences(estimator: str) -> None:
    value: Callable[[Tensor], Tensor] = lambda logp: kl_penalty(logp, OLD, WEIGHTS, estimator)  # noqa: E731
    assert torch.autograd.gradcheck(value, (LOGP.clone().requires_grad_(),), eps=1e-7, atol=1e-6)


def test_on_policy_ratio_losses_have_the_policy_gradient() -> None:
    """old = logp: the ratio is 1, and the gradient that of -A log pi, whatever the clip range."""
    for name in ("clipped_ratio", "sequence_ratio"):
        logp = LOGP.clone().requires_grad_()
        loss = LOSSES[name].loss(logp, logp.detach(), -0.7, WEIGHTS, clip_low=0.0003, clip_high=0.0004)
        assert torch.allclose(torch.autograd.grad(loss.value, logp)[0], 0.7 * WEIGHTS)
        assert loss.clipped == 0

"""oneDNN's products of a warm start, against torch's own in double precision."""

import pytest
import torch

from r3l.lab.warm_start.products import OneDNNProducts, linear, product


@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_a_plain_linear(bias: bool) -> None:
    torch.manual_seed(0)
    x, weight, offset, slope = torch.randn(2, 40, 24), torch.randn(56, 24), torch.randn(56), torch.randn(2, 40, 56)
    narrow = [t.clone().requires_grad_() for t in (x, weight, offset)]
    wide = [t.double().requires_grad_() for t in (x, weight, offset)]
    found = linear(narrow[0], narrow[1], narrow[2] if bias else None)
    wanted = torch.nn.functional.linear(wide[0], wide[1], wide[2] if bias else None)
    found.backward(slope)
    wanted.backward(slope.double())
    torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=1e-5)
    for mine, theirs in zip(narrow[: 3 if bias else 2], wide, strict=False):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad.double(), theirs.grad, atol=1e-4, rtol=1e-5)


def test_a_product_is_a_times_b_transposed_for_any_dtype() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        a, b = torch.randn(33, 8).to(dtype), torch.randn(5, 8).to(dtype)
        torch.testing.assert_close(product(a, b), a @ b.T, atol=2e-2 if dtype == torch.bfloat16 else 1e-5, rtol=1e-2)


@pytest.mark.parametrize(
    ("dtype", "tokens", "taken"), [(torch.float32, 40, True), (torch.float32, 3, False), (torch.float64, 40, False)]
)
def test_only_wide_enough_float32_products_are_taken(dtype: torch.dtype, tokens: int, taken: bool) -> None:
    layer = torch.nn.Linear(8, 4, dtype=dtype)
    with OneDNNProducts():
        y = layer(torch.randn(tokens, 8, dtype=dtype))
    assert ("_Linear" in str(y.grad_fn) or "View" in str(y.grad_fn)) == taken

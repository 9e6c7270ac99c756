"""Errors against float64 beside eager's: long sums must not lose digits."""

from __future__ import annotations

import pytest
import torch

from kernelmill import get_backend


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize("depth", [256, 1000, 3072, 8192])
def test_products_are_as_exact_as_eager(rows: int, depth: int, dynamic: bool) -> None:
    torch.manual_seed(depth)
    linear = torch.nn.Linear(depth, 96, bias=False).requires_grad_(False)
    x = torch.randn(rows, depth)
    exact = x.double() @ linear.weight.double().t()
    torch._dynamo.reset()
    compiled = torch.compile(linear, backend=get_backend(), dynamic=dynamic)

    def error(result: torch.Tensor) -> float:
        return float((result - exact).abs().mean())

    assert error(compiled(x)) <= 2 * error(linear(x))

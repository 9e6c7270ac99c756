"""Errors against float64 beside eager's: long sums must not lose digits."""

from __future__ import annotations

from collections.abc import Callable

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


def _rows(size: int) -> torch.Tensor:
    """Rows that a softmax may meet: spread, equal, far apart, huge, masked, not numbers."""
    torch.manual_seed(size)
    x = torch.randn(12, size)
    x[1], x[2] = x[1] * 30, 2.5
    x[3, 1] = 3e38
    x[4], x[4, 2] = -3e38, 3e38
    x[5, : size // 2], x[6], x[7, 1], x[8, 0] = -torch.inf, -torch.inf, torch.inf, torch.nan
    x[9], x[9, 1] = -torch.inf, torch.nan
    x[10], x[11] = 1e9 + x[10], x[11] - 1e4
    return x


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
@pytest.mark.parametrize(("size", "dim"), [(1024, 1), (37, 1), (40, 0)])
def test_softmax_is_as_exact_as_eager(
    function: Callable[[torch.Tensor, int], torch.Tensor], size: int, dim: int
) -> None:
    x = _rows(size) if dim else _rows(size).t().contiguous()
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=get_backend(), dynamic=False)
    exact, eager, ours = function(x.double(), dim), function(x, dim), compiled(x, dim)
    assert torch.equal(ours.isnan(), eager.isnan())
    torch.testing.assert_close(ours, eager, equal_nan=True)

    def error(result: torch.Tensor) -> float:
        difference = result - exact
        return float(difference[difference.isfinite()].abs().mean())

    assert error(ours) <= 2 * error(eager)

"""Distances between all points of two sets: kernels, as exact as eager."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.compiled import reported

BY_DIFFERENCES, BY_PRODUCT = "donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist"


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("order", "mode"),
    [
        (0.0, None), (1.0, None), (1.5, None), (2.0, None), (2.0, BY_DIFFERENCES),
        (2.0, BY_PRODUCT), (3.0, None), (math.inf, None),
    ],
)  # fmt: skip
def test_distances_are_as_exact_as_eagers(order: float, mode: str | None, dynamic: bool) -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return torch.cdist(a, b, order, **({} if mode is None else {"compute_mode": mode}))

    torch._dynamo.reset()
    torch.manual_seed(0)
    backend, reports = reported()
    call = torch.compile(function, backend=backend, dynamic=dynamic)
    for batch, rows, columns, size in ((2, 7, 5, 3), (3, 9, 4, 17), (2, 40, 30, 8)):
        a, b = torch.randn(batch, rows, size), torch.randn(1, columns, size)
        apart = (a.double()[:, :, None] - b.double()[:, None]).abs()
        exact = torch.linalg.vector_norm(apart, order, dim=-1)
        found, eager = call(a, b), function(a, b)
        assert found.stride() == eager.stride()
        allowed = (eager - exact).abs().max() + exact.max() * torch.finfo(torch.float32).eps
        assert (found - exact).abs().max() <= allowed
        torch.testing.assert_close(call(a.double(), b.double()), function(a.double(), b.double()))
    assert [fallback for report in reports for fallback in report.fallbacks] == []


@pytest.mark.parametrize("order", [0.0, 1.0, 2.0, 3.0, math.inf])
def test_numbers_that_are_none_come_out_as_eagers(order: float) -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return torch.cdist(a, b, order)

    torch._dynamo.reset()
    a = torch.tensor([[torch.nan, 1.0], [torch.inf, 2.0], [1.0, -torch.inf], [0.0, 1.0]])
    call = torch.compile(function, backend=reported()[0])
    torch.testing.assert_close(call(a, a), function(a, a), equal_nan=True)


def test_gradients_are_eagers() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return torch.cdist(a, b, 1.0).square().sum()

    torch._dynamo.reset()
    call = torch.compile(function, backend=reported()[0])
    found, eager = ([torch.randn(6, 3, generator=torch.Generator().manual_seed(s)).requires_grad_()
                     for s in range(2)] for _ in range(2))  # fmt: skip
    call(*found).backward()
    function(*eager).backward()
    for mine, theirs in zip(found, eager, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)

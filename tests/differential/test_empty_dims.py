"""Reductions over no dims, and the places of windows in which nothing is the largest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernelmill.backend.entry import Backend
from tests.e2e.conftest import BACKEND


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reduce", [torch.any, torch.all])
def test_over_no_dims_nothing_is_reduced(reduce: Callable[..., Tensor], dynamic: bool) -> None:
    def overload(x: Tensor) -> Tensor:
        return getattr(torch.ops.aten, reduce.__name__).dims(x, [])

    for function in (overload, lambda x: reduce(x, dim=(), keepdim=True)):
        for x in (torch.tensor([[0, 2], [3, 0], [0, 0]]), torch.tensor([0.0, 0.5])):
            torch._dynamo.reset()
            found = torch.compile(function, backend=BACKEND, dynamic=dynamic)(x)
            torch.testing.assert_close(found, function(x))


def test_values_that_two_passes_over_nothing_read() -> None:
    def whether(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:0].any(), x[:0].all()

    backend = Backend()
    found = torch.compile(whether, backend=backend, dynamic=False)(torch.randn(4, 6).t())
    assert [value.item() for value in found] == [False, True]
    assert [capture.refused for capture in backend.captures] == [""]


@pytest.mark.parametrize(("padding", "dilation"), [(1, 1), (1, 2), (1, 3)])
def test_where_nothing_is_above_the_lowest(padding: int, dilation: int) -> None:
    def pool(x: Tensor) -> tuple[Tensor, Tensor]:
        function = torch.nn.functional.max_pool2d_with_indices
        return function(x, 3, 1, padding, dilation)

    x = torch.full((1, 2, 9, 8), float("-inf"))
    x[0, 1, 4, 4] = 1.0
    for found, expected in zip(torch.compile(pool, backend=BACKEND)(x), pool(x), strict=True):
        torch.testing.assert_close(found, expected)

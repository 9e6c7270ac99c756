"""scatter_reduce in each mode, with and without the input itself, as kernels and as in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.compiled import reported

MODES = ("sum", "prod", "mean", "amax", "amin")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8)


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_equals_eager(mode: str, itself: bool) -> None:
    def function(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        return x.scatter_reduce(-1, index, source, mode, include_self=itself)

    compare(function, itself)


@pytest.mark.parametrize("mode", ["mean", "amax"])
def test_special_numbers_come_out_as_eagers(mode: str) -> None:
    def function(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        return x.scatter_reduce(0, index, source, mode, include_self=False)

    x = torch.tensor([torch.nan, 1.0, 2.0, torch.inf])
    source = torch.tensor([torch.inf, 3.0, torch.nan, -torch.inf, -0.0])
    index = torch.tensor([1, 1, 2, 3, 0])
    call = torch.compile(function, backend=reported()[0])
    torch.testing.assert_close(call(x, index, source), function(x, index, source), equal_nan=True)


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("mode", ["amax", "amin", "prod", "sum"])
def test_bools(mode: str, itself: bool) -> None:
    def function(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        return x.scatter_reduce(0, index, source, mode, include_self=itself)

    x, source = torch.tensor([True, False, True]), torch.tensor([False, True, False, True])
    call = torch.compile(function, backend=reported()[0], fullgraph=True)
    index = torch.tensor([0, 1, 1, 2])
    assert torch.equal(call(x, index, source), function(x, index, source))


def compare(function: Any, itself: bool) -> None:
    """Over dtypes, with sizes that vary; indices that several elements share and that none has."""
    torch.manual_seed(0)
    for dtype in DTYPES:
        torch._dynamo.reset()
        backend, reports = reported()
        call = torch.compile(function, backend=backend, dynamic=True)
        for rows, columns, count in ((3, 7, 9), (2, 5, 4), (4, 8, 20)):
            x = torch.randint(-4, 5, (rows, columns)).to(dtype)
            source = torch.randint(-4, 5, (rows, count)).to(dtype)
            index = torch.randint(0, columns - 1, (rows, count))
            if dtype is torch.int8:
                source = source.sign()  # products of more would leave the range
            expected = function(x, index, source)
            torch.testing.assert_close(call(x, index, source), expected)
        assert [fallback for report in reports for fallback in report.fallbacks] == []

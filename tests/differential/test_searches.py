"""searchsorted and bucketize as they are called: eager's positions, and eager's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.differential.opinfo import Flat, Verdict, check_flat
from tests.e2e.conftest import BACKEND

NAN, INF = float("nan"), float("inf")
BOUNDS = torch.tensor([-INF, -1.0, -0.0, 0.0, 0.0, 2.0, 5.5, INF, NAN])
VALUES = torch.tensor([[NAN, INF, -INF, 0.0], [-0.0, 1.0, 2.0, -3.0]])


def verdict(function: Callable[..., Any], *args: Any) -> Verdict:
    return check_flat(Flat(function, (args, {})), BACKEND)


def assert_lowered(function: Callable[..., Any], *args: Any) -> None:
    found = verdict(function, *args)
    assert found.status == "passed", found


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("out_int32", [False, True])
def test_positions(right: bool, out_int32: bool) -> None:
    how = {"right": right, "out_int32": out_int32}
    assert_lowered(lambda x, b: torch.bucketize(x, b, **how), VALUES, BOUNDS)
    assert_lowered(lambda x, b: torch.bucketize(2.0, b, **how) + x, VALUES, BOUNDS)
    assert_lowered(lambda x, b: torch.searchsorted(b, x, **how), VALUES, BOUNDS)
    assert_lowered(lambda x, b: torch.searchsorted(b, 0, **how) + x, VALUES, BOUNDS)
    side = "right" if right else "left"
    assert_lowered(lambda x, b: torch.searchsorted(b, x, side=side), VALUES, BOUNDS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int8])
def test_dtypes(dtype: torch.dtype) -> None:
    bounds, values = torch.arange(-9, 9).to(dtype), torch.randint(-12, 12, (5, 7)).to(dtype)
    assert_lowered(torch.bucketize, values, bounds)


def test_a_row_for_each_row_of_values_not_contiguous() -> None:
    rows, values = torch.randn(9, 3).sort(0)[0].t(), torch.randn(6, 3).t()
    assert_lowered(lambda r, x: torch.searchsorted(r, x, right=True), rows, values)


def test_samples_of_a_distribution() -> None:
    """As a renderer places samples along rays."""

    def samples(weights: Tensor, u: Tensor) -> Tensor:
        cdf = torch.cumsum(weights / weights.sum(-1, keepdim=True), -1)
        position = torch.searchsorted(cdf, u, right=True).clamp(max=cdf.shape[-1] - 1)
        return torch.gather(cdf, -1, position)

    assert_lowered(samples, torch.rand(8, 31) + 0.1, torch.rand(8, 17))


def test_what_is_left_to_aten() -> None:
    bounds, values = torch.tensor([3.0, 1.0, 2.0]), torch.rand(4)
    order = torch.argsort(bounds)
    found = verdict(lambda b, x, s: torch.searchsorted(b, x, sorter=s), bounds, values, order)
    assert found.status == "fell back", found
    ones = torch.arange(5)
    assert verdict(lambda b: torch.bucketize(2.5, b) + b, ones).status == "fell back"
    assert verdict(torch.bucketize, values.double(), bounds).status == "fell back"

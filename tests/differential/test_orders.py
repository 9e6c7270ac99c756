"""sort, topk and histc as they are called: eager's values and eager's order of equal elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.compiled import reported
from tests.differential.opinfo import Flat, Verdict, check_flat
from tests.e2e.conftest import BACKEND

NAN, INF = float("nan"), float("inf")


def verdict(function: Callable[..., Any], *args: Any) -> Verdict:
    return check_flat(Flat(function, (args, {})), BACKEND)


def assert_lowered(function: Callable[..., Any], *args: Any) -> None:
    found = verdict(function, *args)
    assert found.status == "passed", found


def mixed(*shape: int) -> Tensor:
    """Many equal elements, both zeros, infinities and NaN."""
    numbers = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1.0, 2.0, -1.0])
    return numbers[torch.arange(torch.Size(shape).numel()) * 5 % 61 % 8].reshape(shape)


@pytest.mark.parametrize("shape", [(65,), (3, 65), (2, 0), (40, 1), (1,), ()], ids=str)
def test_sorts(shape: tuple[int, ...]) -> None:
    for x in (mixed(*shape), torch.randint(0, 5, shape)):
        assert_lowered(lambda x: torch.sort(x, dim=0), x)
        assert_lowered(lambda x: torch.sort(x, dim=-1, descending=True), x)
        assert_lowered(lambda x: torch.sort(x, stable=True, dim=0, descending=True), x)


@pytest.mark.parametrize("shape", [(65,), (3, 65), (40, 1), (1,)], ids=str)
def test_topk(shape: tuple[int, ...]) -> None:
    k = shape[-1] // 3 + 1
    for x in (mixed(*shape), torch.randint(0, 5, shape)):
        assert_lowered(lambda x: torch.topk(x, k), x)
        assert_lowered(lambda x: torch.topk(x, k, sorted=False, largest=False), x)
        assert_lowered(lambda x: torch.topk(x, 1, dim=0), x)


def test_relatives_of_sort() -> None:
    x = mixed(5, 33)
    assert_lowered(lambda x: torch.argsort(x, 1), x)
    assert_lowered(lambda x: torch.argsort(x, stable=True, dim=0), x)
    assert_lowered(torch.msort, x)


def test_a_row_of_one_element_many_times_over() -> None:
    assert_lowered(lambda x: torch.sort(x.expand(4, 40), dim=1), torch.randn(4, 1))
    assert_lowered(lambda x: torch.sort(x.expand(4, 40), dim=0), torch.randn(1, 40))


def test_bools() -> None:
    x = torch.arange(60).reshape(3, 20) % 3 == 0
    assert_lowered(lambda x: torch.sort(x, dim=1), x)
    assert_lowered(lambda x: torch.sort(x, dim=1, descending=True), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bounds", [(0, 7), (-3.7, -3.4), (1.1, 13.3)], ids=str)
def test_histograms(bounds: tuple[float, float], dtype: torch.dtype) -> None:
    low, high = bounds
    x = torch.rand(1000, dtype=dtype) * 1.4 * (high - low) + low - 0.2 * (high - low)
    x[::50], x[1::50], x[2::50], x[3::50] = low, high, NAN, INF
    for bins in (1, 3, 8):
        assert_lowered(lambda x, bins=bins: torch.histc(x, bins, low, high), x)
    assert_lowered(lambda x: torch.histc(x.reshape(10, 100), 5, low, high), x)
    assert_lowered(lambda x: torch.histc(x[:0], 5, low, high), x)


@pytest.mark.parametrize("bounds", [(0, 0), (2, 2)], ids=str)
def test_histograms_of_unknown_bounds_are_left_to_aten(bounds: tuple[int, int]) -> None:
    found = verdict(lambda x: torch.histc(x, 5, *bounds), torch.randn(30))
    assert found.status == "fell back", found


def test_sizes_that_change() -> None:
    def function(x: Tensor) -> Any:
        return (*torch.topk(x, 4), *torch.sort(x, dim=0), torch.histc(x, 6, -1, 2))

    backend, reports = reported(BACKEND)
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for size in (6, 17, 300, 256, 255):
        x = torch.randint(-2, 4, (5, size)).float()
        for mine, theirs in zip(compiled(x), function(x), strict=True):
            assert torch.equal(mine, theirs)
    assert len(reports) == 1 and not reports[0].fallbacks


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_modes(mode: str) -> None:
    def function(x: Tensor) -> Any:
        values, order = torch.topk(torch.softmax(x, -1), 3)
        return values, torch.sort(order, dim=-1)[0]

    compiled = torch.compile(function, backend=BACKEND, options={"mode": mode})
    for rows in (4, 9):
        x = torch.randn(rows, 32)
        torch.testing.assert_close(compiled(x), function(x))

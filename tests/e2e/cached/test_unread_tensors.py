"""Cached methods that ask tensors for their dtype or sizes, and whose programs read nothing of
them: each call has to be for these all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = [KEPT, pytest.mark.needs_internal("dynamo.tensor_sizes")]

Function = Callable[[Any, Any, Tensor], Tensor]


def by_dtype(model: Any, asked: Any, y: Tensor) -> Tensor:
    return y * 2.0 if asked.dtype == torch.float32 and asked.dim() == 2 else y * 3.0


def by_size(model: Any, asked: Any, y: Tensor) -> Tensor:
    return y * 2.0 if asked.shape[0] > 3 else y * 5.0


def by_one(model: Any, asked: Any, y: Tensor) -> Tensor:
    return y * 2.0 if asked.shape[0] == 1 else y * 5.0


def by_equal_sizes(model: Any, asked: Any, y: Tensor) -> Tensor:
    return y * 2.0 if asked.shape[0] == y.shape[0] else y * 5.0


def by_strides(model: Any, asked: Any, y: Tensor) -> Tensor:
    return y * 2.0 if asked.is_contiguous() else y * 5.0


def by_gradient(model: Any, asked: Any, y: Tensor) -> Tensor:
    return y * 2.0 if asked.requires_grad else y * 5.0


def by_element(model: Any, asked: Any, y: Tensor) -> Tensor:
    return y * 2.0 if asked["first"][1].dtype == torch.float32 else y * 5.0


class Model(nn.Module):
    def __init__(self, function: Function, folder: Path, dynamic: bool) -> None:
        super().__init__()
        self.unread = nn.Parameter(torch.ones(3, 3))
        self.function = function
        self.run = cache_compile(self.forward, dynamic=dynamic, cache_dir=str(folder))

    def forward(self, asked: Any, y: Tensor) -> Tensor:
        return self.function(self, asked, y)


ASKED: dict[Function, list[Any]] = {
    by_dtype: [
        torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float64), torch.ones(2),
        torch.ones(2, 2, dtype=torch.int64),
    ],
    by_size: [torch.ones(5), torch.ones(7), torch.ones(2), torch.ones(3), torch.ones(9)],
    by_one: [torch.ones(5), torch.ones(1), torch.ones(3), torch.ones(0)],
    by_equal_sizes: [torch.ones(4), torch.ones(6), torch.ones(4), torch.ones(4, 2)],
    by_strides: [torch.ones(4, 3), torch.ones(3, 4).t(), torch.ones(4, 3)],
    by_gradient: [torch.ones(4), torch.ones(4, requires_grad=True)],
    by_element: [
        {"first": [torch.ones(2), torch.ones(2)]},
        {"first": [torch.ones(2), torch.ones(2).double()]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", ASKED, ids=lambda function: function.__name__)
@torch.no_grad()
def test_each_call_is_for_what_it_is_asked(
    tmp_path: Path, function: Function, dynamic: bool
) -> None:
    y = torch.arange(4.0)
    first = Model(function, tmp_path, dynamic).eval()
    again = Model(function, tmp_path, dynamic).eval()
    for model in (first, again):  # the second loads what the first has kept
        for asked in (*ASKED[function], *ASKED[function]):
            assert torch.equal(model.run(asked, y), function(model, asked, y))
            assert torch.equal(model.run(asked, y), function(model, asked, y))
        assert model.run.statistics["uncached"] == 0
    assert again.run.statistics["traced"] == 0


@torch.no_grad()
def test_a_mask_that_grows_and_is_not_read_is_no_new_trace(tmp_path: Path) -> None:
    model = Model(by_dtype, tmp_path, True).eval()
    y = torch.arange(4.0)
    for size in (*range(2, 12), 2, 30):
        assert torch.equal(model.run(torch.ones(size, 3), y), y * 2.0)
    assert model.run.statistics == {"loaded": 0, "traced": 1, "uncached": 0}


@torch.no_grad()
def test_sizes_that_are_equal_in_the_trace_have_to_be_equal(tmp_path: Path) -> None:
    model = Model(by_equal_sizes, tmp_path, True).eval()
    for size, asked in ((4, 4), (5, 5), (6, 6), (7, 5), (5, 7), (7, 7)):
        y = torch.ones(size)
        assert torch.equal(model.run(torch.ones(asked), y), y * (2.0 if size == asked else 5.0))


@torch.no_grad()
def test_a_parameter_that_is_not_read_may_get_another_dtype(tmp_path: Path) -> None:
    def of_parameter(model: Any, asked: Any, y: Tensor) -> Tensor:
        return y * 2.0 if model.unread.dtype == torch.float32 else y * 5.0

    model, y = Model(of_parameter, tmp_path, False).eval(), torch.ones(4)
    for dtype in (torch.float32, torch.float64, torch.float32):
        model.unread.data = model.unread.data.to(dtype)
        for _ in range(3):
            assert torch.equal(model.run(None, y), of_parameter(model, None, y))
    model.unread = nn.Parameter(torch.ones(3, 3, dtype=torch.float64))
    assert torch.equal(model.run(None, y), y * 5.0)


class Looked(nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.held = torch.ones(3)
        self.run = cache_compile(self.step, cache_dir=folder)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x * (2 if hasattr(self.held, "note") else 3)


@torch.no_grad()
def test_a_size_of_an_attribute_that_is_asked_for_no_more_is_found_at_each_call(
    tmp_path: Path,
) -> None:
    for loaded in (0, 1):
        model = Looked(tmp_path)
        for _ in range(3):
            assert torch.equal(model.run(torch.ones(2, 3)), torch.full((2, 3), 3.0))
        assert model.run.statistics == {"loaded": loaded, "traced": 1 - loaded, "uncached": 0}

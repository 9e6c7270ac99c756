"""Operators that torch traces otherwise than it runs them: eager's results all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.differential.opinfo import Flat, Verdict, check_flat
from tests.e2e.conftest import BACKEND

_aten = torch.ops.aten


def verdict(function: Callable[..., Any], *args: Any) -> Verdict:
    return check_flat(Flat(function, (args, {})), BACKEND)


def test_more_elements_found_than_one_operand_has() -> None:
    mask = torch.ones(5, 4, dtype=torch.bool)
    found = verdict(lambda x, m: torch.masked_select(x, m) * 2, torch.randn(4), mask)
    assert found.status == "fell back", found


def test_a_truth_value_as_result() -> None:
    found = verdict(lambda x: (x.item(), x), torch.tensor(True))
    assert found.status == "fell back", found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_statistics_of_batch_norm(dtype: torch.dtype) -> None:
    def function(*tensors: Tensor) -> Any:
        return _aten._batch_norm_with_update(*tensors, 0.1, 1e-5)

    arguments = (torch.randn(6, 4), *torch.rand(4, 4))
    found = verdict(function, *(tensor.to(dtype) for tensor in arguments))
    assert found.status == "fell back", found
    whole = found.detail.startswith("whole graph: torch traces other results")
    assert whole == (dtype == torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("results", [1, 4])
@pytest.mark.parametrize("last", [False, True])
def test_embedding_bags(dtype: torch.dtype, results: int, last: bool) -> None:
    def function(weight: Tensor, indices: Tensor, offsets: Tensor) -> Any:
        bags = _aten._embedding_bag(weight, indices, offsets, False, 0, False, None, last)
        return [bag + 1 for bag in bags[:results]]

    weight, offsets = torch.randn(10, 4).to(dtype), torch.tensor([0, 2, 3])
    found = verdict(function, weight, torch.tensor([1, 2, 3]), offsets)
    assert found.status == "fell back", found
    whole = found.detail.startswith("whole graph: torch traces other results")
    assert whole == (results > 1 and (last or dtype == torch.bfloat16))


def test_channels_last_are_kept() -> None:
    x = torch.randn(2, 4, 4, 6).to(memory_format=torch.channels_last)
    y, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    found = verdict(lambda y, i: torch.nn.functional.max_unpool2d(y, i, 2), y, indices)
    assert found.status == "passed", found
    found = verdict(lambda x: torch.nn.functional.channel_shuffle(x, 2), x)
    assert found.status == "passed", found


@pytest.mark.parametrize("index", [torch.tensor(1), torch.tensor([-1, 2])])
def test_take(index: Tensor) -> None:
    x = torch.tensor([[True, False], [False, True]])
    assert verdict(torch.take, x, index).status == "passed"


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
def test_unique_of_matrices(dim: int | None) -> None:
    x = torch.randint(0, 2, (5, 3))
    for function in (torch.unique, torch.unique_consecutive):
        found = verdict(lambda x, unique=function: unique(x, dim=dim) + 1, x)
        assert found.status == "fell back", found
    row = verdict(lambda x: torch.unique_consecutive(x, dim=dim) + 1, x[0])
    assert dim == 1 or row.status == "fell back", row


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.max(0), lambda x: x.min(0), lambda x: x.max(), lambda x: x.min(),
        lambda x: torch.amax(x, 0), lambda x: x.argmax(0), lambda x: x.argmin(),
        lambda x: torch.aminmax(x, dim=0),
    ],
)  # fmt: skip
def test_the_largest_of_nothing_is_an_error(function: Callable[[Tensor], Any]) -> None:
    nothing = torch.randn(0, 2)
    with pytest.raises((IndexError, RuntimeError), match="dim"):
        function(nothing)
    with pytest.raises(Exception, match="dim"):
        torch.compile(function, backend=BACKEND, dynamic=False)(nothing)

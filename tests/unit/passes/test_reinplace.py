"""Which writes into an argument's memory touch only what they write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.graph.ir import Graph
from kernelmill.passes import DEFAULT
from tests.unit.frontend.tracing import trace

CACHE = torch.randn(2, 8, 4)
NEW = torch.randn(2, 1, 4)
POSITION = torch.tensor([3])
Function = Callable[..., Any]


def optimised(function: Function, *args: Tensor, **options: Any) -> Graph:
    """The graph after the passes, which updated its arguments as eager does."""
    return trace(function, *args, passes=DEFAULT, **options).graph


def in_place(graph: Graph) -> int:
    return sum(node.attrs.get("inplace") is True for node in graph.nodes)


def index_copy(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    cache.index_copy_(1, at, new)
    return cache.sum(1)


def index_put(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    cache[:, at] = new
    return cache * 2


def scatter(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    cache.scatter_add_(1, at.expand(2, 1, 4), new)
    return cache.exp()


def two_writes(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    cache[:, at] = new
    cache[:, at + 1] = new * 2
    return cache.sum()


def slice_(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    cache[:, 3:4] = new
    return cache.sum(1)


@pytest.mark.parametrize(
    ("function", "writes"),
    [(index_copy, 1), (index_put, 1), (scatter, 1), (two_writes, 2), (slice_, 1)],
)
def test_written_in_place(function: Function, writes: int) -> None:
    assert in_place(optimised(function, CACHE, NEW, POSITION)) == writes


def test_a_slice_is_written_without_a_copy_of_the_rest() -> None:
    graph = optimised(slice_, CACHE, NEW, POSITION)
    assert [node.op for node in graph.nodes if node.op in ("concat", "slice")] == []


def test_a_slice_at_a_symbolic_place() -> None:
    def function(cache: Tensor, new: Tensor) -> Tensor:
        cache[:, 2 : 2 + new.shape[1]] = new
        return new + 1

    graph = optimised(function, torch.zeros(2, 9, 4), torch.ones(2, 3, 4), dynamic=True)
    assert in_place(graph) == 1


def reads_old_value(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    before = cache.sum()
    cache[:, at] = new
    return before


def reads_while_writing(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    cache[:, at] = cache[:, at + 1] * 2
    return new


def returns_a_copy(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    cache[:, at] = new
    return cache.clone()


def feeds_another(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    fresh = cache.index_copy(1, at, new)
    new.copy_(fresh[:, :1])
    cache.copy_(fresh)
    return at + 1


def not_an_argument(cache: Tensor, new: Tensor, at: Tensor) -> Tensor:
    return (cache + 1).index_copy_(1, at, new)


@pytest.mark.parametrize(
    "function",
    [reads_old_value, reads_while_writing, returns_a_copy, feeds_another, not_an_argument],
)
def test_not_in_place(function: Function) -> None:
    assert in_place(optimised(function, CACHE, NEW, POSITION)) == 0


def test_swapped_arguments_are_not_written_in_place() -> None:
    def function(a: Tensor, b: Tensor, at: Tensor) -> Tensor:
        kept = a.clone()
        a.copy_(b.index_copy(0, at, b[:1]))
        b.copy_(kept)
        return at + 1

    assert in_place(optimised(function, torch.randn(5, 2), torch.randn(5, 2), POSITION)) == 0

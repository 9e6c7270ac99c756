"""argsort and argtopk as kernels: eager's positions, for equal elements too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, DType, to_torch
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Value
from kernelmill.lower.templates.sort.template import RADIX_SORTED
from tests.compiled import check, graph, whole

FLOATS, INTEGERS = (F64, F32, F16, BF16), (I64, I32, I16, I8, U8)
INF, NAN = float("inf"), float("nan")


def sorts(dtype: DType, *shape: int, dim: int = -1, stable: bool = False) -> Graph:
    """Both directions along one dim."""
    return graph(
        lambda b, x: [
            b.emit("argsort", x, dim=dim % len(shape), descending=d, stable=stable)
            for d in (False, True)
        ],
        (dtype, shape),
    )


def tops(dtype: DType, k: int, *shape: int, dim: int = -1) -> Graph:
    """The k largest and smallest, in order and as they are found."""
    return graph(
        lambda b, x: [
            b.emit("argtopk", x, dim=dim % len(shape), k=k, largest=largest, sorted=in_order)
            for largest in (False, True)
            for in_order in (False, True)
        ],
        (dtype, shape),
    )


def special(*shape: int, step: int = 3) -> Tensor:
    """Few different numbers: both zeros, infinities, NaN of both signs."""
    numbers = torch.tensor([0.0, -0.0, INF, -INF, NAN, -NAN, 1.0, 1e-42, -2.5])
    count = torch.Size(shape).numel()
    return numbers[torch.arange(count) * step * 7 % 1009 % len(numbers)].reshape(shape)


@pytest.mark.parametrize("size", [0, 1, 3, 16, 17, 65])
def test_equal_elements_have_eagers_order(size: int) -> None:
    x = whole(F32, 2, size, low=0, high=3)
    targets = [profile("x86-64-v2"), profile("x86-64-v3")] if size == 65 else []
    check(sorts(F32, 2, size), x, targets=targets, interpret=size == 17)
    check(tops(F32, size // 2, 2, size), x, targets=targets, interpret=size in (3, 17))


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("size", [18, 700])
def test_numbers_that_are_none_and_zeros_of_both_signs(size: int, stable: bool) -> None:
    for dtype in (F32, F64):
        x = special(2, size).to(torch.float64 if dtype == F64 else torch.float32)
        check(sorts(dtype, 2, size, stable=stable), x)
        check(tops(dtype, 7, 2, size), x)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, BOOL], ids=str)
def test_every_dtype(dtype: DType) -> None:
    x = whole(dtype, 4, 200, low=-100, high=100)
    check(sorts(dtype, 4, 200), x)
    if dtype != BOOL:
        check(tops(dtype, 9, 4, 200), x)
        check(tops(dtype, 2, 4, 200), x)


@pytest.mark.parametrize("dtype", [I64, I32, I8, U8], ids=str)
def test_the_ends_of_integers(dtype: DType) -> None:
    info = torch.iinfo(to_torch(dtype))
    numbers = [info.max, info.min, 0, info.max, info.min, 1]
    ends = torch.tensor(numbers, dtype=to_torch(dtype))
    check(sorts(dtype, 6), ends)
    check(tops(dtype, 4, 6), ends)


@pytest.mark.parametrize("shape", [(5, 17, 3), (33, 2), (2, 0, 3), (0, 4), (1, 40, 1)])
@pytest.mark.parametrize("dim", [0, 1])
def test_other_dims_than_the_last(shape: tuple[int, ...], dim: int) -> None:
    x = whole(F32, *shape)
    check(sorts(F32, *shape, dim=dim), x)
    check(tops(F32, shape[dim] // 2, *shape, dim=dim), x)


@pytest.mark.parametrize("k", [1, 2, 3, 17, 18, 60, 128])
def test_few_and_many_of_a_row(k: int) -> None:
    """128 elements are read into a heap for up to 2, and cut up for more."""
    x = whole(F32, 6, 128, low=0, high=40)
    check(tops(F32, k, 6, 128), x)
    if k in (2, 3):
        check(tops(F32, k, 1, 128), x[:1], interpret=True)


def test_a_heap_of_many_in_a_long_row() -> None:
    for x in (torch.randn(2, 5000), whole(F32, 2, 5000), special(2, 5000)):
        check(tops(F32, 50, 2, 5000), x)


def killer(size: int, run: Callable[[list[int], Callable[[int, int], bool]], None]) -> list[int]:
    """A row that sorting takes the longest for (McIlroy: A Killer Adversary for Quicksort): while
    it runs, whatever is chosen as pivot becomes the smallest that is left."""
    gas = size
    values, solid, candidate = [gas] * size, 0, 0

    def less(a: int, b: int) -> bool:
        nonlocal solid, candidate
        if values[a] == values[b] == gas:
            values[a if a == candidate else b] = solid
            solid += 1
        if values[a] == gas:
            candidate = a
        elif values[b] == gas:
            candidate = b
        return values[a] < values[b]

    run(list(range(size)), less)
    return values


def cut_to_the_end(row: list[int], less: Callable[[int, int], bool]) -> None:
    """Partitions at medians of three, as introsort makes them, without its limit."""
    pieces = [(0, len(row))]
    while pieces:
        first, last = pieces.pop()
        if last - first <= 3:
            continue
        middle = first + (last - first) // 2
        at = sorted((first + 1, middle, last - 1), key=_Key.of(row, less))[1]
        row[first], row[at] = row[at], row[first]
        left, right = first + 1, last
        while True:
            while less(row[left], row[first]):
                left += 1
            right -= 1
            while less(row[first], row[right]):
                right -= 1
            if left >= right:
                break
            row[left], row[right] = row[right], row[left]
            left += 1
        pieces += [(first, left), (left, last)]


class _Key:
    def __init__(self, item: int, less: Callable[[int, int], bool]) -> None:
        self.item, self.less = item, less

    @staticmethod
    def of(row: list[int], less: Callable[[int, int], bool]) -> Callable[[int], _Key]:
        return lambda place: _Key(row[place], less)

    def __lt__(self, other: _Key) -> bool:
        return self.less(self.item, other.item)


def test_rows_on_which_cutting_gives_up() -> None:
    """Where pieces hardly get smaller, eager goes on with a heap."""
    x = torch.tensor(killer(600, cut_to_the_end)).float()
    rows = torch.stack([x, x.flip(0), x // 3])
    check(sorts(F32, 3, 600), rows)
    check(tops(F32, 300, 3, 600), rows)
    check(tops(F32, 599, 3, 600), rows)


@pytest.mark.parametrize("size", [RADIX_SORTED - 1, RADIX_SORTED])
def test_one_long_row_of_integers(size: int) -> None:
    x = whole(I32, size, low=0, high=9)
    check(sorts(I32, size), x)
    check(sorts(I32, 1, size), x[None])


@pytest.mark.parametrize("size", [0, 5, 17, 300, RADIX_SORTED])
def test_symbolic_sizes(size: int) -> None:
    n = sym("n")

    def build(b: GraphBuilder, x: Value) -> list[Value]:
        order = b.emit("argsort", x, dim=0, descending=False, stable=False)
        if size < 4:
            return [order]
        most = {"dim": 0, "largest": True, "sorted": True}
        return [order, b.emit("argtopk", x, k=4, **most)]

    check(graph(build, (I64, (n,))), whole(I64, size, low=0, high=9))


def test_a_symbolic_k() -> None:
    n, k = sym("n"), sym("k")

    def build(b: GraphBuilder, x: Value, count: Value) -> Value:
        return b.emit("argtopk", x, dim=1, k=k, largest=True, sorted=True)

    for size, count in ((70, 0), (70, 1), (70, 2), (70, 70), (20, 19)):
        x = whole(F32, 3, size, low=0, high=9)
        check(graph(build, (F32, (3, n)), (F32, (k,))), x, torch.zeros(count))


def test_what_is_sorted_may_be_computed() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        doubled = b.emit(
            "add", b.emit("permute", x, dims=(1, 0)), b.emit("permute", x, dims=(1, 0))
        )
        order = b.emit("argtopk", doubled, dim=1, k=3, largest=True, sorted=True)
        return b.emit("gather", doubled, order, dim=1)

    made = check(graph(build, (F32, (40, 9))), whole(F32, 40, 9))
    assert any("TopK" in kernel.type for kernel in made.kernels.values())

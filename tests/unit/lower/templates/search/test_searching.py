"""searchsorted as a kernel: eager's positions, for equal, unordered and missing numbers too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, F16, F32, F64, I8, I16, I32, I64, U8, DType
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph
from tests.compiled import check, whole

OLDER = (profile("x86-64-v2"), profile("x86-64-v3"))
INF, NAN = float("inf"), float("nan")


def search(
    dtype: DType, rows: tuple[int, ...], values: tuple[int, ...], right: bool = False,
    result: DType = I64,
) -> Graph:  # fmt: skip
    b = GraphBuilder("g")
    row, value = b.input("row", dtype, rows), b.input("x", dtype, values)
    b.graph.results = [b.emit("searchsorted", row, value, right=right, dtype=result)]
    return b.graph


def ascending(dtype: DType, *shape: int) -> Tensor:
    return whole(dtype, *shape, low=-40, high=40).sort(-1)[0]


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [F64, F32, BF16, F16, I64, I32, I16, I8, U8], ids=str)
def test_every_dtype_with_ties(dtype: DType, right: bool) -> None:
    made = search(dtype, (50,), (7, 9), right)
    check(made, ascending(dtype, 50), whole(dtype, 7, 9, low=-45, high=45), targets=OLDER)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 1000])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 9, 5000])
def test_sizes_of_rows_and_numbers_of_values(size: int, count: int) -> None:
    values = whole(F32, count, low=-45, high=45)
    check(search(F32, (size,), (count,)), ascending(F32, size), values)


@pytest.mark.parametrize("result", [I32, I64], ids=str)
def test_a_row_for_each_row_of_values(result: DType) -> None:
    made = search(F32, (3, 4, 11), (3, 4, 6), True, result)
    check(made, ascending(F32, 3, 4, 11), whole(F32, 3, 4, 6, low=-45, high=45), interpret=True)


@pytest.mark.parametrize("right", [False, True])
def test_numbers_that_are_no_numbers_and_zeros_of_both_signs(right: bool) -> None:
    row = torch.tensor([-INF, -1.0, -0.0, 0.0, 0.0, 2.0, INF, NAN, NAN])
    values = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, 2.0, -3.0])
    check(search(F32, (9,), (8,), right), row, values)


@pytest.mark.parametrize("right", [False, True])
def test_rows_that_are_not_ascending_are_searched_as_eager_does(right: bool) -> None:
    row = torch.randn(77)
    row[::9] = NAN
    check(search(F32, (77,), (400,), right), row, torch.randn(400))


def test_a_single_value() -> None:
    check(search(F32, (9,), ()), ascending(F32, 9), torch.tensor(3.0))


@pytest.mark.parametrize("size", [0, 1, 5, 64, 100])
@pytest.mark.parametrize("count", [0, 1, 7, 300])
def test_symbolic_sizes(size: int, count: int) -> None:
    b = GraphBuilder("g")
    n, m = sym("s0", 0, 1000), sym("s1", 0, 1000)
    b.graph.symbols |= {"s0": n, "s1": m}
    row, value = b.input("row", F32, (n,)), b.input("x", F32, (m, 3))
    b.graph.results = [b.emit("searchsorted", row, value, right=False, dtype=I64)]
    check(b.graph, ascending(F32, size), whole(F32, count, 3, low=-45, high=45))


def test_values_and_rows_are_read_through_views() -> None:
    b = GraphBuilder("g")
    row, value = b.input("row", F32, (5, 20)), b.input("x", F32, (9, 5))
    flat = b.emit("reshape", b.emit("slice", row, dim=0, start=2, end=3, step=1), shape=(20,))
    turned = b.emit("permute", value, dims=(1, 0))
    found = b.emit("searchsorted", flat, turned, right=True, dtype=I64)
    b.graph.results = [b.emit("add", found, found)]
    check(b.graph, ascending(F32, 5, 20), whole(F32, 9, 5, low=-45, high=45))

"""Lookups, writes by index and scans in graphs, compiled and interpreted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelmill.core.dim import sym
from kernelmill.core.dtype import BF16, BOOL, COMPUTABLE, F32, F64, I32, I64, U8, DType
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Combine, Graph, Value
from tests.compiled import check, graph, interpreted, lowered, run_compiled, whole

OLDER = (profile("x86-64-v2"), profile("x86-64-v3"))


def places(size: int, *shape: int) -> torch.Tensor:
    """Indices from both ends."""
    return torch.randint(-size, size, shape)


# ---- index and gather -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", COMPUTABLE, ids=str)
def test_rows_of_a_table(dtype: DType) -> None:
    made = graph(
        lambda b, x, i: b.emit("index", x, i, dims=(0,), at=0), (dtype, (7, 19)), (I64, (2, 5))
    )
    check(made, whole(dtype, 7, 19), places(7, 2, 5), interpret=dtype in (F32, BF16, BOOL))


@pytest.mark.parametrize(("dims", "at"), [((0,), 0), ((1,), 1), ((2,), 0), ((2,), 2), ((1,), 2)])
def test_one_dim_is_looked_up(dims: tuple[int, ...], at: int) -> None:
    made = graph(
        lambda b, x, i: b.emit("index", x, i, dims=dims, at=at), (F32, (4, 5, 20)), (I64, (3, 2))
    )
    check(
        made, whole(F32, 4, 5, 20), places((4, 5, 20)[dims[0]], 3, 2), targets=OLDER, interpret=True
    )


@pytest.mark.parametrize(("dims", "at"), [((0, 1), 0), ((0, 2), 0), ((1, 2), 1), ((0, 1, 2), 0)])
def test_several_dims_are_looked_up_together(dims: tuple[int, ...], at: int) -> None:
    shape = (4, 5, 20)

    def build(b: GraphBuilder, x: Value, *indices: Value) -> Value:
        return b.emit("exp", b.emit("index", x, *indices, dims=dims, at=at))

    made = graph(build, (F32, shape), *[(I64, (18,))] * len(dims))
    check(made, whole(F32, *shape), *(places(shape[d], 18) for d in dims), interpret=True)


@pytest.mark.parametrize("dim", [0, 1])
def test_gather(dim: int) -> None:
    made = graph(lambda b, x, i: b.emit("gather", x, i, dim=dim), (F32, (6, 21)), (I64, (6, 21)))
    check(made, whole(F32, 6, 21), places((6, 21)[dim], 6, 21), targets=OLDER, interpret=True)


def test_a_lookup_in_what_is_computed_by_what_is_computed() -> None:
    def build(b: GraphBuilder, x: Value, i: Value) -> list[Value]:
        table = b.emit("exp", b.emit("flip", x, dims=(0,)))
        shifted = b.emit("neg", i)
        rows = b.emit("index", table, shifted, dims=(0,), at=0)
        again = b.emit("index", rows, b.emit("index", i, i, dims=(0,), at=0), dims=(0,), at=0)
        joined = b.emit("concat", rows, again, dim=0)
        return [joined, b.emit("reduce_sum", rows, dims=(1,))]

    made = graph(build, (F32, (9, 17)), (I64, (5,)))
    check(made, whole(F32, 9, 17), torch.tensor([0, 4, 2, 3, 1]), targets=OLDER, interpret=True)


def test_a_lookup_behind_a_condition() -> None:
    def build(b: GraphBuilder, x: Value, i: Value) -> list[Value]:
        found = b.emit("index", x, i, dims=(0,), at=0)
        around = b.emit("pad", found, low=(1, 2), high=(2, 1), value=-1.0)
        return [around, b.emit("neg", b.emit("permute", around, dims=(1, 0)))]

    made = graph(build, (F32, (30, 40)), (I64, (37,)))
    check(made, whole(F32, 30, 40), places(30, 37), targets=OLDER, interpret=True)


@pytest.mark.parametrize("sizes", [(1, 1), (5, 18), (3, 0)])
def test_symbolic_tables(sizes: tuple[int, int]) -> None:
    rows, count = sym("s0"), sym("s1")
    made = graph(
        lambda b, x, i: b.emit("index", x, i, dims=(0,), at=0), (F32, (rows, 6)), (I64, (count,))
    )
    check(made, whole(F32, sizes[0], 6), places(sizes[0], sizes[1]), interpret=True)


def looking_up(rows: Any = 4, origin: str = "") -> Graph:
    b = GraphBuilder("g")
    b.origin = origin
    x, i = b.input("x", F32, (rows, 3)), b.input("i", I64, (2,))
    b.graph.results = [b.emit("index", x, i, dims=(0,), at=0)]
    return b.graph


@pytest.mark.parametrize("wrong", [4, -5, 2**62, -(2**63)])
def test_an_index_out_of_range_is_an_error_that_names_the_line(wrong: int) -> None:
    made = looking_up(origin="model.py:3: x[i]")
    inputs = [whole(F32, 4, 3), torch.tensor([0, wrong])]
    with pytest.raises(IndexError, match=r"model\.py:3: x\[i\]"):
        run_compiled(made, inputs)
    with pytest.raises(IndexError, match="out of range"):
        interpreted(lowered(made), inputs)


@pytest.mark.parametrize("wrong", [-1, 4])
@pytest.mark.parametrize("op", ["index", "gather", "index_put", "scatter"])
def test_unsigned_indices_do_not_count_from_the_end(op: str, wrong: int) -> None:
    attrs: dict[str, Any] = {"unsigned": True}
    attrs |= {"dims": (0,), "at": 0} if op.startswith("index") else {"dim": 0}
    attrs |= {"mode": "set"} if op in ("index_put", "scatter") else {}

    def build(b: GraphBuilder, x: Value, y: Value, i: Value) -> Value:
        operands = {"index_put": (x, y, i), "scatter": (x, i, y)}.get(op, (x, i))
        return b.emit(op, *operands, **attrs)

    made = graph(build, (F32, (4,)), (F32, (2,)), (I64, (2,)))
    x, y = whole(F32, 4), whole(F32, 2)
    check(made, x, y, torch.tensor([3, 0]), interpret=True)
    for run in (run_graph, run_compiled):
        with pytest.raises(IndexError):
            run(made, [x, y, torch.tensor([0, wrong])])


@pytest.mark.parametrize("rows", [0, sym("s0")], ids=["static", "symbolic"])
def test_nothing_can_be_looked_up_in_an_empty_table(rows: Any) -> None:
    inputs = [torch.empty(0, 3), torch.tensor([0, 0])]
    with pytest.raises(IndexError):
        run_compiled(looking_up(rows), inputs)
    with pytest.raises(IndexError):
        interpreted(lowered(looking_up(rows)), inputs)


# ---- scatter and index_put ------------------------------------------------------------------


@pytest.mark.parametrize("mode", Combine)
@pytest.mark.parametrize("dtype", [F32, F64, BF16, I32, U8, BOOL], ids=str)
def test_scatter(dtype: DType, mode: str) -> None:
    def build(b: GraphBuilder, x: Value, i: Value, y: Value) -> Value:
        return b.emit("scatter", x, i, y, dim=1, mode=mode)

    made = graph(build, (dtype, (3, 8)), (I64, (3, 5)), (dtype, (3, 5)))
    indices = torch.stack([torch.randperm(8)[:5] for _ in range(3)])
    if mode != "set":
        indices[:, 0] = indices[:, 1]
    inputs = whole(dtype, 3, 8, low=-2, high=3), indices, whole(dtype, 3, 5, low=-2, high=3)
    check(made, *inputs, interpret=True)


@pytest.mark.parametrize("mode", ["set", "add"])
@pytest.mark.parametrize(("dims", "at"), [((0,), 0), ((1,), 1), ((0, 2), 0), ((1,), 0)])
def test_index_put(dims: tuple[int, ...], at: int, mode: str) -> None:
    shape = (4, 5, 18)
    kept = [size for d, size in enumerate(shape) if d not in dims]
    written = (*kept[:at], 3, *kept[at:])

    def build(b: GraphBuilder, x: Value, y: Value, *indices: Value) -> Value:
        into, what = b.emit("neg", x), b.emit("abs", y)
        return b.emit("index_put", into, what, *indices, dims=dims, at=at, mode=mode)

    made = graph(build, (F32, shape), (F32, written), *[(I64, (3,))] * len(dims))
    indices = [torch.randperm(shape[d])[:3] - shape[d] * (d % 2) for d in dims]
    check(made, whole(F32, *shape), whole(F32, *written), *indices, interpret=True)


def test_a_write_out_of_range_is_an_error() -> None:
    def build(b: GraphBuilder, x: Value, i: Value, y: Value) -> Value:
        return b.emit("scatter", x, i, y, dim=0, mode="set")

    made = graph(build, (F32, (4,)), (I64, (2,)), (F32, (2,)))
    for wrong in (4, -5):
        with pytest.raises(IndexError, match="out of range"):
            run_compiled(made, [whole(F32, 4), torch.tensor([0, wrong]), whole(F32, 2)])


def test_writes_into_nothing_and_of_nothing() -> None:
    def build(b: GraphBuilder, x: Value, i: Value, y: Value) -> Value:
        return b.emit("index_put", x, y, i, dims=(0,), at=0, mode="set")

    none = torch.empty(0, dtype=torch.int64)
    made = graph(build, (F32, (4, 3)), (I64, (0,)), (F32, (0, 3)))
    check(made, whole(F32, 4, 3), none, torch.empty(0, 3), interpret=True)
    s = sym("s0")
    made = graph(build, (F32, (s, 3)), (I64, (2,)), (F32, (2, 3)))
    with pytest.raises(IndexError):
        run_compiled(made, [torch.empty(0, 3), torch.zeros(2, dtype=torch.int64), whole(F32, 2, 3)])


# ---- scans ----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", [F32, BF16, I64, U8], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_scans(op: str, dtype: DType, dim: int) -> None:
    def build(b: GraphBuilder, x: Value) -> list[Value]:
        computed = b.emit("abs", b.emit("flip", x, dims=(0,)))
        found = b.emit(op, computed, dim=dim)
        return [found, b.emit("neg", b.emit("permute", found, dims=(1, 0)))]

    made = graph(build, (dtype, (6, 21)))
    check(made, whole(dtype, 6, 21, low=-1, high=2), interpret=True)


def test_a_scan_of_a_reduction_and_a_reduction_of_a_scan() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        totals = b.emit("cumsum", b.emit("reduce_sum", x, dims=(1,)), dim=0)
        return b.emit("reduce_max", totals, dims=(0,))

    check(graph(build, (F32, (9, 12))), whole(F32, 9, 12), targets=OLDER, interpret=True)

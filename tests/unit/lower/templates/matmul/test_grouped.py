"""Grouped products as kernels: which rows have which matrix is found out while they run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kernelmill.core.dim import Dim, sym
from kernelmill.core.dtype import BF16, F16, F32, F64, I32, I64, DType, InputRole
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph
from kernelmill.plan.ir import Launch
from tests.compiled import check, lowered, program, whole

COUNTS = [(3, 0, 4, 1), (0, 0, 0, 8), (8, 0, 0, 0), (2, 1, 0, 2), (0, 0, 0, 0)]
"""Rows of each of four groups; the last two leave some of eight rows over."""


def products(
    dtype: DType = F32, rows: Dim = 8, groups: int = 4, depth: int = 40, columns: int = 20,
    role: InputRole = InputRole.PARAM, turned: bool = False, followed: bool = False,
    ends: DType = I32,
) -> Graph:  # fmt: skip
    b = GraphBuilder("experts")
    x = b.input("x", dtype, (rows, depth))
    shape = (groups, columns, depth) if turned else (groups, depth, columns)
    w = b.input("w", dtype, shape, role=role)
    last = b.input("ends", ends, (groups,))
    if turned:
        w = b.emit("permute", w, dims=(0, 2, 1))
    result = b.emit("grouped_matmul", x, w, last)
    if followed:
        scale = b.input("scale", dtype, (rows, 1))
        result = b.emit("mul", result, b.emit("expand", scale, shape=(rows, columns)))
        result = b.emit("add", result, b.emit("full", value=1.0, dtype=dtype, shape=result.shape))
    b.graph.results = [result]
    return b.graph


def arguments(
    counts: Sequence[int], dtype: DType = F32, rows: int = 8, depth: int = 40, columns: int = 20,
    turned: bool = False, followed: bool = False, ends: torch.dtype = torch.int32,
) -> list[torch.Tensor]:  # fmt: skip
    groups = len(counts)
    shape = (groups, columns, depth) if turned else (groups, depth, columns)
    last = torch.tensor(counts).cumsum(0).to(ends)
    found = [whole(dtype, rows, depth), whole(dtype, *shape), last]
    return [*found, whole(dtype, rows, 1)] if followed else found


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_empty_groups_and_rows_of_none(counts: tuple[int, ...]) -> None:
    made = check(products(followed=True), *arguments(counts, followed=True))
    assert [kernel.type for kernel in made.kernels.values()].count("GroupedMatMulMulAdd") == 1
    assert len(made.plan.steps) == 1 and made.plan.prepare, "the weights are packed once"


def test_interpreter_and_other_processors() -> None:
    given = arguments((1, 0, 3), rows=5, depth=6, columns=9)
    targets = [profile("x86-64-v2"), profile("x86-64-v3"), profile("x86-64-v4")]
    check(products(rows=5, groups=3, depth=6, columns=9), *given, targets=targets, interpret=True)


@pytest.mark.parametrize("role", [InputRole.PARAM, InputRole.USER])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [F64, F32, BF16, F16], ids=str)
def test_dtypes_and_ways_in_which_weights_lie(dtype: DType, role: InputRole, turned: bool) -> None:
    graph = products(dtype, rows=21, groups=2, role=role, turned=turned)
    check(graph, *arguments((12, 8), dtype, rows=21, turned=turned))


@pytest.mark.parametrize("columns", [1, 16, 100, 200])
@pytest.mark.parametrize("depth", [1, 37])
def test_widths_that_are_no_whole_panels(columns: int, depth: int) -> None:
    given = arguments((11, 18), rows=30, depth=depth, columns=columns)
    check(products(rows=30, groups=2, depth=depth, columns=columns), *given)


def test_deep_weights_are_summed_in_blocks() -> None:
    given = arguments((9, 30), rows=40, depth=20000, columns=33)
    graph = products(rows=40, groups=2, depth=20000, columns=33)
    check(graph, *given, targets=[profile("x86-64-v3")])


@pytest.mark.parametrize("rows", [0, 1, 7, 100])
def test_symbolic_rows(rows: int) -> None:
    graph = products(BF16, rows=sym("n"), groups=3, followed=True, ends=I64)
    counts = (rows // 2, 0, rows // 3)
    check(graph, *arguments(counts, BF16, rows=rows, followed=True, ends=torch.int64))


def test_an_end_behind_all_rows_is_the_last_row() -> None:
    x, w, _ = arguments((1, 1, 1, 1))
    check(products(), x, w, torch.tensor([3, 9, 9, 100], dtype=torch.int32))


@pytest.mark.parametrize("ends", [(3, 2, 8, 8), (-1, 2, 8, 8)], ids=str)
def test_ends_that_descend_are_refused(ends: tuple[int, ...]) -> None:
    x, w, _ = arguments((1, 1, 1, 1))
    run = program(lowered(products()))
    with pytest.raises(IndexError):
        run(x, w, torch.tensor(ends, dtype=torch.int32))


def test_what_both_threads_have_are_columns_of_every_group() -> None:
    """All rows may have one matrix: its columns are in tasks that lie apart."""
    given = arguments((0, 0, 0, 0, 0, 0, 0, 64), rows=64, depth=256, columns=2048)
    made = check(products(rows=64, groups=8, depth=256, columns=2048), *given)
    (launch,) = made.plan.steps
    assert isinstance(launch, Launch) and isinstance(launch.tasks, int)
    assert launch.tasks >= 16

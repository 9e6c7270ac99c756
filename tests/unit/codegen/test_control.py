"""Loops, carried values, branches, unrolling, tasks and symbolic dims."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmill.codegen.compile import llvm_ir
from kernelmill.core.dim import Dim, Sym, ceildiv, minimum, of_atom
from kernelmill.core.dtype import BOOL, F32, I64, DType
from kernelmill.core.errors import CodegenError
from kernelmill.core.target.isa import host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import For, Value, VType
from tests.unit.codegen.native import Native


def symbol(builder: KernelBuilder, name: str, low: int = 0) -> Dim:
    found = Sym(name, low, None)
    builder.kernel.dims.append(found)
    return of_atom(found)


def scalar(builder: KernelBuilder, dtype: DType, value: float) -> Value:
    return builder.op("splat", value, dtype=dtype, lanes=1)


def test_tasks_outside_the_range_are_not_run() -> None:
    builder = KernelBuilder("kernel", "Map", tasks=10)
    builder.buffer("y", I64, 10, "out")
    builder.store("y", builder.task, builder.index(builder.task + 1))
    native = Native(builder.kernel)
    y = np.zeros(10, np.int64)
    native({"y": y}, tasks=(3, 7))
    np.testing.assert_array_equal(y, [0, 0, 0, 4, 5, 6, 7, 0, 0, 0])
    native({"y": y}, tasks=(9, 9))
    assert y[9] == 0


def test_one_task_is_not_run_by_a_thread_without_a_share() -> None:
    builder = KernelBuilder("kernel", "Map", tasks=1)
    builder.buffer("y", I64, 3, "inout")
    seven = builder.index(builder.task + 7)
    with builder.loop(0, 3) as loop:
        value = builder.op("add", builder.load("y", loop.index, I64), seven)
        builder.store("y", loop.index + builder.task, value)
    native = Native(builder.kernel)
    y = np.zeros(3, np.int64)
    for first, last, wanted in [(0, 0, 0), (1, 1, 0), (0, 1, 7)]:
        native({"y": y}, tasks=(first, last))
        np.testing.assert_array_equal(y, [wanted] * 3)


@pytest.mark.parametrize(("passes", "loops"), [(4, 0), (500, 1)])
def test_short_loops_are_written_out(passes: int, loops: int) -> None:
    builder = KernelBuilder("kernel", "Map", tasks=1)
    builder.buffer("x", F32, passes, "in")
    builder.buffer("y", F32, passes, "out")
    with builder.loop(0, passes, carry=[(VType(F32), 0.0)]) as loop:
        total = builder.op("add", loop.carried[0], builder.load("x", loop.index, F32))
        builder.store("y", loop.index, total)
        loop.carry(total)
    assert llvm_ir(builder.kernel, host_isa()).count(" phi i64 ") == loops
    x, y = np.arange(passes, dtype=np.float32), np.zeros(passes, np.float32)
    Native(builder.kernel)({"x": x, "y": y})
    np.testing.assert_array_equal(y, np.cumsum(x))


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("columns", [0, 1, 16, 37])
def test_row_sums_carry_vectors(rows: int, columns: int) -> None:
    builder = KernelBuilder("kernel", "Reduce")
    count, width = symbol(builder, "rows"), symbol(builder, "columns")
    builder.kernel.tasks = count
    builder.buffer("x", F32, count * width, "in")
    builder.buffer("y", F32, count, "out")
    row = builder.task
    with builder.loop(0, width, 16, carry=[(VType(F32, 16), 0.0), (VType(I64), 0)]) as loop:
        mask = builder.op("lane_mask", builder.index(width - loop.index), lanes=16)
        value = builder.load("x", row * width + loop.index, F32, 16, mask)
        total, passes = loop.carried
        loop.carry(builder.op("add", total, value), builder.op("add", passes, 1))
    total, passes = loop.results
    result = builder.op("reduce_add", total)
    builder.store("y", row, builder.op("add", result, builder.op("cast", passes, dtype=F32)))
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    y = np.full(rows, -1, np.float32)
    Native(builder.kernel)({"x": x, "y": y}, [rows, columns], (0, rows))
    np.testing.assert_array_equal(y, x.sum(1) + -(-columns // 16))


def test_nested_loops_with_dependent_bounds() -> None:
    builder = KernelBuilder("kernel", "Map")
    size = symbol(builder, "n")
    builder.buffer("y", I64, size * size, "inout")
    with builder.loop(0, size) as rows, builder.loop(rows.index, size, 2) as columns:
        place = rows.index * size + columns.index
        builder.store("y", place, builder.index(place * 10 + 1))
    y = np.zeros((7, 7), np.int64)
    Native(builder.kernel)({"y": y}, [7])
    wanted = np.zeros((7, 7), np.int64)
    for i in range(7):
        for j in range(i, 7, 2):
            wanted[i, j] = (i * 7 + j) * 10 + 1
    np.testing.assert_array_equal(y, wanted)


def test_swapping_carried_values() -> None:
    builder = KernelBuilder("fibonacci", "Map")
    size = symbol(builder, "n")
    builder.buffer("y", I64, 2, "out")
    with builder.loop(0, size, carry=[(VType(I64), 0), (VType(I64), 1)]) as loop:
        a, b = loop.carried
        loop.carry(b, builder.op("add", a, b))
    for i, result in enumerate(loop.results):
        builder.store("y", i, result)
    native = Native(builder.kernel)
    y = np.zeros(2, np.int64)
    for count, wanted in [(0, [0, 1]), (1, [1, 1]), (10, [55, 89])]:
        native({"y": y}, [count])
        np.testing.assert_array_equal(y, wanted)


def unrolled(builder: KernelBuilder) -> None:
    statement = builder.kernel.body[-1]
    assert isinstance(statement, For)
    statement.unroll = True


def test_unrolled_loop_with_carry_let_and_inner_loop() -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", I64, 40, "in")
    builder.buffer("y", I64, 40, "inout")
    builder.buffer("z", I64, 1, "out")
    with builder.loop(0, 4, carry=[(VType(I64), 0)]) as outer:
        first = builder.load("x", outer.index, I64)
        place = builder.let(first, 0, 9)
        total = builder.op("add", outer.carried[0], builder.index(place * 2 + outer.index))
        with builder.loop(0, 3) as inner:
            at = outer.index * 10 + inner.index * 3 + place % 2
            builder.store("y", at, builder.index(place * 100 + inner.index))
        outer.carry(total)
    builder.store("z", 0, outer.results[0])
    unroll = builder.kernel.body[0]
    assert isinstance(unroll, For)
    unroll.unroll = True
    x, y, z = np.array([5, 8, 2, 7] * 10), np.zeros(40, np.int64), np.zeros(1, np.int64)
    Native(builder.kernel)({"x": x, "y": y, "z": z})
    wanted = np.zeros(40, np.int64)
    for i in range(4):
        for j in range(3):
            wanted[i * 10 + j * 3 + x[i] % 2] = x[i] * 100 + j
    np.testing.assert_array_equal(y, wanted)
    assert z[0] == sum(int(x[i]) * 2 + i for i in range(4))


def test_unrolling_needs_constant_bounds() -> None:
    builder = KernelBuilder("kernel", "Map")
    size = symbol(builder, "n")
    builder.buffer("y", I64, size, "out")
    with builder.loop(0, size) as loop:
        builder.store("y", loop.index, builder.index(loop.index))
    unrolled(builder)
    with pytest.raises(CodegenError, match="unknown length"):
        Native(builder.kernel)


def test_branches_with_results() -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("c", BOOL, 2, "in")
    builder.buffer("y", F32, 2, "inout")
    builder.buffer("z", F32, 32, "out")
    with builder.loop(0, 2) as loop:
        condition = builder.load("c", loop.index, BOOL)
        with builder.when(condition) as branch:
            doubled = builder.op("mul", builder.load("y", loop.index, F32), 2.0)
            branch.results = (builder.fresh(F32, 16), builder.fresh(I64))
            branch.then_yields = (builder.op("splat", doubled, lanes=16), 7)
        with builder.otherwise(branch):
            builder.store("y", loop.index, scalar(builder, F32, -1.0))
            branch.otherwise_yields = (0.5, builder.index(loop.index))
        vector, number = branch.results
        widened = builder.op("cast", number, dtype=F32)
        builder.store("z", loop.index * 16, builder.op("add", vector, widened))
    c, y = np.array([True, False]), np.array([3.0, 4.0], np.float32)
    z = np.zeros(32, np.float32)
    Native(builder.kernel)({"c": c, "y": y, "z": z})
    np.testing.assert_array_equal(y, [3.0, -1.0])
    np.testing.assert_array_equal(z, [13.0] * 16 + [1.5] * 16)


def test_a_loop_that_its_body_ends() -> None:
    """Newton's steps towards a square root, which count themselves; each row needs its own."""
    builder = KernelBuilder("kernel", "Map", tasks=4)
    builder.buffer("x", I64, 4, "in")
    builder.buffer("y", I64, 8, "out")
    x = builder.load("x", builder.task, I64)
    with builder.repeat([(VType(I64), x), (VType(I64), 0)]) as steps:
        root, count = steps.carried
        half = builder.op("shr", builder.op("add", root, builder.op("div", x, root)), 1)
        smaller = builder.op("lt", half, root)
        root = builder.op("select", smaller, half, root)
        steps.again(smaller, root, builder.op("add", count, 1))
    builder.store("y", builder.task * 2, steps.results[0])
    builder.store("y", builder.task * 2 + 1, steps.results[1])
    x_, y = np.array([1, 4, 99, 10**12]), np.zeros(8, np.int64)
    Native(builder.kernel)({"x": x_, "y": y}, tasks=(0, 4))
    np.testing.assert_array_equal(y[::2], [1, 2, 9, 10**6])
    known = np.zeros(8, np.int64)
    run_kernel(builder.kernel, {"x": x_, "y": known})
    np.testing.assert_array_equal(y, known)
    assert y[1] == 1 and y[7] > 10


def test_branch_without_otherwise_holding_a_loop() -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", I64, 8, "in")
    builder.buffer("y", I64, 8, "inout")
    with builder.loop(0, 8) as loop:
        value = builder.load("x", loop.index, I64)
        with builder.when(builder.op("gt", value, 3)):
            bound = builder.let(value, 0, 8)
            carry = [(VType(I64), 100)]
            with builder.loop(0, bound, carry=carry) as inner:
                inner.carry(builder.op("add", inner.carried[0], builder.index(inner.index)))
            builder.store("y", loop.index, inner.results[0])
    x, y = np.arange(8), np.zeros(8, np.int64)
    Native(builder.kernel)({"x": x, "y": y})
    np.testing.assert_array_equal(y, [0, 0, 0, 0, 106, 110, 115, 121])


def test_blocked_loop_over_a_symbolic_size() -> None:
    builder = KernelBuilder("kernel", "Map")
    size = symbol(builder, "n", 1)
    builder.kernel.tasks = ceildiv(size, 100)
    builder.buffer("y", I64, size, "inout")
    start = builder.task * 100
    stop = minimum(start + 100, size)
    with builder.loop(start, stop) as loop:
        builder.store("y", loop.index, builder.index(loop.index * loop.index))
    y = np.full(250, -1)
    Native(builder.kernel)({"y": y}, [234], (0, 3))
    np.testing.assert_array_equal(y, [*(i * i for i in range(234)), *[-1] * 16])


@pytest.mark.parametrize("lanes", [1, 16])
def test_check_reports_and_goes_on(lanes: int) -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", I64, lanes, "in")
    builder.buffer("status", I64, 1, "inout")
    builder.buffer("y", BOOL, lanes, "out")
    inside = builder.op("lt", builder.load("x", 0, I64, lanes), 10)
    builder.store("y", 0, builder.op("check", inside, code=3))
    native = Native(builder.kernel)
    status, y = np.zeros(1, np.int64), np.zeros(lanes, np.bool_)
    native({"x": np.full(lanes, 9), "status": status, "y": y})
    assert y.all()
    assert status[0] == 0
    x = np.full(lanes, 9)
    x[-1] = 10
    native({"x": x, "status": status, "y": y})
    np.testing.assert_array_equal(y, x < 10)
    assert status[0] == 3


def test_unknown_operator_is_named() -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("y", F32, 1, "out")
    builder.store("y", 0, builder.op("frobnicate", 1.0, dtype=F32, lanes=1))
    with pytest.raises(CodegenError, match="frobnicate"):
        Native(builder.kernel)

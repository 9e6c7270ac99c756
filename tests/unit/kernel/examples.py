"""Kernels that between them use every operator, every statement and every corner of the text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernelmill.core.dim import Sym, maximum, minimum, of_atom
from kernelmill.core.dtype import BF16, BOOL, F32, F64, I8, I32, I64, U8
from kernelmill.core.target.dot_units import BF16_PAIRS, BFMMLA, TILE_BF16, TILE_BYTES, VNNI
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import COMPARE, MATH, REDUCE, STATUS, Kernel, VType

EXAMPLES: dict[str, Callable[[], Kernel]] = {}


def _example(function: Callable[[], Kernel]) -> Callable[[], Kernel]:
    EXAMPLES[function.__name__] = function
    return function


@_example
def operators() -> Kernel:
    b = KernelBuilder("operators", "Every")
    b.buffer("x", F32, 8, "in")
    b.buffer("i", I32, 8, "in")
    b.buffer(STATUS, I64, 1, "out")
    x, i = b.load("x", 0, F32, 8), b.load("i", 0, I32, 8)
    for op in "neg abs sqrt floor ceil trunc round".split():
        b.op(op, x)
    for op in sorted(MATH - {"pow", "atan2", "hypot", "nextafter"}):
        b.op(op, x)
    for op in "add sub mul div min max rem copysign pow atan2 hypot nextafter".split():
        b.op(op, x, 2.5)
    for op in "and or xor shl shr".split():
        b.op(op, i, -3)
    b.op("not", i)
    b.op("fma", x, 1.0, x)
    masks = [b.op(op, x, i_or_x) for op in sorted(COMPARE) for i_or_x in (x, float("inf"))]
    b.op("select", masks[0], x, float("nan"))
    b.op("select", True, 0, b.op("splat", 7, dtype=I64))
    b.op("cast", b.op("cast", x, dtype=BF16), dtype=U8)
    b.op("bitcast", x, dtype=I32)
    b.op("bitcast", b.op("bitcast", i, dtype=I8, lanes=32), dtype=I32, lanes=8)
    b.dot(VNNI, i, -3, b.op("splat", 5, dtype=I32, lanes=8))
    b.dot(BF16_PAIRS, i, -3, x)
    pair = b.op("splat", 5, dtype=I64, lanes=2)
    b.dot(BFMMLA, pair, -3, b.op("slice", x, start=4, lanes=4))
    for op in sorted(REDUCE):
        b.op(op, i)
    lane = b.op("extract", x, 3)
    whole = b.op("concat2", x, b.op("splat", lane, lanes=4))
    b.op("slice", whole, start=5, lanes=7)
    b.op("interleave", x, x, half=1)
    some = b.op("lane_mask", b.index(5), lanes=8)
    b.op("check", b.op("and", some, b.op("lt", b.op("iota", dtype=I32, lanes=8), i)), code=2)
    return b.kernel


@_example
def memory() -> Kernel:
    s = Sym("s9", 1, 512)
    size = of_atom(s)
    b = KernelBuilder("memory", "Copy", tasks=size)
    b.kernel.dims.append(s)
    b.kernel.scratch = size * 4 + 64
    b.buffer("x", BF16, size * 64, "in")
    b.buffer("order", I64, 64, "in")
    b.buffer("y", BF16, size * 64, "inout")
    b.buffer("w", BF16, 64, "in")
    base = b.task * 64
    order = b.load("order", 0, I64, 16, stride=4)
    mask = b.op("lane_mask", b.index(minimum(size, 16)), lanes=16)
    found = b.gather("x", base, order, BF16, mask)
    b.store("y", base + 63, found, mask, stride=-4)
    b.scatter("y", base, order, b.load("x", base, BF16), mask)
    b.store("scratch", size - 1, b.op("cast", found, dtype=F32), mask)
    b.load("scratch", maximum(size - 4, 0) % 8, U8, 3)
    b.prefetch("x", base + 64)
    b.buffer("z", BF16, 64, "out")
    b.store("z", b.task, b.load("w", b.task, BF16))
    b.kernel.buffers[-1] = replace(b.kernel.buffers[-1], over=("w",), nontemporal=True)
    return b.kernel


@_example
def tiles() -> Kernel:
    b = KernelBuilder("tiles", "MatMul", tasks=2)
    b.kernel.scratch = 256
    b.buffer("x", BF16, 16 * 70, "in")
    b.buffer("w", BF16, 3 * 512, "in")
    b.buffer("y", F32, 2 * 256, "inout")
    whole, sums = VType(BF16, 32, 16), VType(F32, 16, 16)
    with b.loop(0, 2, carry=[(sums, b.tile_zero(sums))]) as loop:
        left = b.tile_load("x", loop.index * 32, whole, 70)
        right = b.tile_load("w", (b.task + loop.index) * 512, whole, 32)
        loop.carry(b.dot(TILE_BF16, left, right, loop.carried[0]))
    b.tile_store("y", b.task * 256, loop.results[0], 16)
    few, shape = VType(U8, 8, 3), VType(I32, 5, 3)
    for unit in TILE_BYTES:
        left = b.tile_load("scratch", 4, VType(unit.a, few.lanes, few.rows), 12 + b.task)
        right = b.tile_load("scratch", 32, VType(unit.b, 20, 2), 20)
        b.tile_store("scratch", 0, b.dot(unit, left, right, b.tile_zero(shape)), 6)
    return b.kernel


@_example
def control() -> Kernel:
    rows, columns = Sym("rows", 1), Sym("columns")
    m, n = of_atom(rows), of_atom(columns)
    b = KernelBuilder("control", "Softmax", tasks=m)
    b.kernel.dims.extend((rows, columns))
    b.buffer("x", F64, m * n, "in")
    b.buffer("y", F64, m, "out")
    start = b.task * n
    kinds = ((VType(F64, 4), 0.0), (VType(BOOL), True))
    with b.loop(0, n // 4 * 4, 4, carry=kinds) as outer:
        total, every = outer.carried
        with b.loop(0, 4, unroll=True, prefix="k") as inner:
            b.load("x", start + outer.index + inner.index, F64)
        x = b.load("x", start + outer.index, F64, 4)
        ones = b.op("reduce_and", b.op("ge", x, 0.0))
        outer.carry(b.op("add", total, x), b.op("and", every, ones))
    total, every = outer.results
    first = b.let(b.op("cast", b.op("extract", total, 0), dtype=I64), 0, n)
    with b.when(every) as branch:
        with b.when(b.op("gt", b.index(first), b.index(n - first))):
            b.store("y", b.task, b.op("reduce_add", total))
        low = b.op("neg", b.op("extract", total, 1))
    with b.otherwise(branch), b.loop(first, n, 2) as rest:
        b.index(rest.index - first)
    branch.results = (b.fresh(F64), b.fresh(BOOL))
    branch.then_yields, branch.otherwise_yields = (low, True), (-0.0, every)
    b.store("y", b.task, branch.results[0])
    with b.repeat([(VType(F64), 1.0), (VType(I64), 0)]) as doubled:
        power, times = doubled.carried
        with b.repeat() as never:
            never.again(b.op("gt", power, 9.0))
        doubled.again(b.op("lt", power, 4.0), b.op("mul", power, 2.0), b.op("add", times, 1))
    b.store("y", b.task, doubled.results[0])
    return b.kernel

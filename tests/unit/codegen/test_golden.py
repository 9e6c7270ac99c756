"""The LLVM IR of two kernels, so that a change of the generator shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernelmill import codegen
from kernelmill.core.dim import Sym, of_atom
from kernelmill.core.dtype import BF16, F32
from kernelmill.core.target.isa import NAMED
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import VType

Golden = Callable[[str, str], None]


def test_map_with_a_masked_tail(golden: Golden) -> None:
    size = of_atom(Sym("n", 1, None))
    builder = KernelBuilder("silu", "Silu")
    builder.kernel.dims.append(Sym("n", 1, None))
    builder.buffer("x", BF16, size, "in")
    builder.buffer("y", BF16, size, "out")
    builder.kernel.buffers[-1] = replace(builder.kernel.buffers[-1], over=("x",))
    with builder.loop(0, size, 16) as loop:
        mask = builder.op("lane_mask", builder.index(size - loop.index), lanes=16)
        short = builder.load("x", loop.index, BF16, 16, mask)
        value = builder.op("cast", short, dtype=F32)
        result = builder.op("mul", value, builder.op("sigmoid", value))
        builder.store("y", loop.index, builder.op("cast", result, dtype=BF16), mask)
    golden("codegen/silu.ll", codegen.llvm_ir(builder.kernel, NAMED["x86-64-v3"]))


def test_row_sums_with_everything_hoisted(golden: Golden) -> None:
    rows, columns = Sym("rows", 1, None), Sym("columns", 1, None)
    width = of_atom(columns)
    builder = KernelBuilder("row_sums", "ReduceSum", tasks=of_atom(rows))
    builder.kernel.dims += [rows, columns]
    builder.buffer("x", F32, of_atom(rows) * width, "in")
    builder.buffer("y", F32, of_atom(rows), "out")
    with builder.loop(0, width // 16, carry=[(VType(F32, 16), 0.0)]) as loop:
        value = builder.load("x", builder.task * width + loop.index * 16, F32, 16)
        loop.carry(builder.op("add", loop.carried[0], value))
    builder.store("y", builder.task, builder.op("reduce_add", loop.results[0]))
    golden("codegen/row_sums.ll", codegen.llvm_ir(builder.kernel, NAMED["x86-64-v4"]))

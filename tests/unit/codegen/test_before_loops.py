"""What does not change in a loop is computed before it, where it is sure to be needed."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from kernelmill.codegen.compile import llvm_ir
from kernelmill.core.dim import Dim, Sym, of_atom
from kernelmill.core.dtype import F32
from kernelmill.core.target.isa import host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel, Value
from tests.unit.codegen.native import TARGETS, Native

ROWS, COLUMNS = 3, 512


def blocks(kernel: Kernel) -> dict[str, str]:
    """The basic blocks of the kernel's loops by their labels."""
    text = llvm_ir(kernel, host_isa()).partition("define internal")[2].partition("\n}")[0]
    parts = re.split(r"^(\w+):$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def where(kernel: Kernel, instruction: str) -> list[str]:
    """The kinds of the blocks that have an instruction: "enter" is before a loop."""
    return [label.rstrip("0123456789") for label, text in blocks(kernel).items()
            if instruction in text]  # fmt: skip


def scaled(
    columns: Dim, factor: Callable[[KernelBuilder, Value, Dim], Value], shared: bool = False
) -> Kernel:
    """y = x * factor(scale of the row, or of all rows), over rows and vectors of columns."""
    builder = KernelBuilder("kernel", "Map", tasks=1)
    builder.buffer("scale", F32, ROWS, "in")
    builder.buffer("x", F32, columns * ROWS, "in")
    builder.buffer("y", F32, columns * ROWS, "out")
    with builder.loop(0, ROWS) as row, builder.loop(0, columns, 4) as loop:
        at = row.index * columns + loop.index
        scale = builder.load("scale", 0 if shared else row.index, F32)
        value = builder.op("mul", builder.load("x", at, F32, 4), factor(builder, scale, loop.index))
        builder.store("y", at, value)
    return builder.kernel


def inverse(builder: KernelBuilder, scale: Value, _: Dim) -> Value:
    return builder.op("div", builder.op("splat", 1.0, dtype=F32, lanes=1), scale)


def logarithm(builder: KernelBuilder, scale: Value, _: Dim) -> Value:
    return builder.op("lgamma", inverse(builder, scale, 0))


def inverse_in_the_first_half(builder: KernelBuilder, scale: Value, at: Dim) -> Value:
    first = builder.op("lt", builder.index(at), COLUMNS // 2)
    with builder.when(first) as statement:
        statement.then_yields = (inverse(builder, scale, at),)
    with builder.otherwise(statement):
        statement.otherwise_yields = (scale,)
    statement.results = (builder.fresh(F32, 1),)
    return statement.results[0]


@pytest.mark.parametrize(
    ("factor", "divided"), [(inverse, "enter"), (logarithm, "enter"),
    (inverse_in_the_first_half, "then")],
)  # fmt: skip
@pytest.mark.parametrize("level", TARGETS)
def test_rows_compute_what_their_elements_share_once(
    level: int, factor: Callable[[KernelBuilder, Value, Dim], Value], divided: str
) -> None:
    kernel = scaled(COLUMNS, factor)
    assert where(kernel, "fdiv") == [divided]
    numbers = np.random.default_rng(0)
    arrays = {
        "scale": np.array([0.5, 0.0, 3.0], np.float32),
        "x": numbers.standard_normal(ROWS * COLUMNS).astype(np.float32),
        "y": np.zeros(ROWS * COLUMNS, np.float32),
    }
    expected = {name: array.copy() for name, array in arrays.items()}
    run_kernel(kernel, expected)
    Native(kernel, TARGETS[level])(arrays)
    np.testing.assert_allclose(arrays["y"], expected["y"], rtol=1e-5)


def test_literals_are_folded_where_they_are_used() -> None:
    def third(builder: KernelBuilder, scale: Value, _: Dim) -> Value:
        three = builder.op("splat", 3.0, dtype=F32, lanes=1)
        return builder.op("mul", scale, inverse(builder, three, 0))

    assert where(scaled(COLUMNS, third), "fdiv") == ["loop"]


def test_nothing_is_read_before_a_loop_that_may_have_no_pass() -> None:
    columns = of_atom(Sym("d0", 0, None))
    kernel = scaled(columns, inverse, shared=True)
    kernel.dims.append(Sym("d0", 0, None))
    text = blocks(kernel)
    (reading,) = (label for label, lines in text.items() if "ptr %b0" in lines)
    assert reading.startswith("enter") and "fdiv" in text[reading]
    entering = next(lines for lines in text.values() if f"label %{reading}," in lines)
    assert "icmp slt i64 0, %d0" in entering

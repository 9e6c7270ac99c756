"""Which loads of a block one instruction reads, and that the same numbers come of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kernelmill import codegen
from kernelmill.codegen.run_loads import load_runs
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import F32
from kernelmill.core.target.isa import NAMED
from kernelmill.core.target.machine import host
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import SCRATCH, For, Kernel, Load, Stmt, VType
from tests.unit.codegen.native import Native

NEON = NAMED["aarch64-neon"]


def sums(offsets: Sequence[int], row: int = 64, products: int = 3, passes: int = 9) -> Kernel:
    """Vectors of x at these places of each of two rows, multiplied with themselves so many times;
    the loop is over pairs of rows."""
    builder = KernelBuilder("sums", "Sums")
    builder.buffer("x", F32, (2 * passes + 1) * row + 64, "in")
    builder.buffer("y", F32, 4 * products, "out")
    with builder.loop(0, 2 * passes, 2, carry=[(VType(F32, 4), 0.0)] * products) as loop:
        carried = list(loop.carried)
        for part in range(2):
            first: Dim = (loop.index + part) * row
            vectors = [builder.load("x", first + offset, F32, 4) for offset in offsets]
            for n, total in enumerate(carried):
                for vector in vectors:
                    total = builder.op("fma", vector, vectors[0], total)
                carried[n] = total
        loop.carry(*carried)
    for n, total in enumerate(loop.results):
        builder.store("y", 4 * n, total)
    return builder.kernel


def body(kernel: Kernel) -> list[Stmt]:
    (loop,) = (statement for statement in kernel.body if isinstance(statement, For))
    return loop.body


def lengths(kernel: Kernel) -> list[int]:
    found = load_runs(body(kernel), 4, 16)
    return [len(run.loads) for run in dict.fromkeys(found.values())]


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ((0, 4, 8), [3, 3]), ((0, 4, 8, 12), [4, 4]), ((0, 4), []), ((0, 4, 9, 13), []),
        ((0, 4, 8, 12, 16), [2, 3, 2, 3]), ((0, 4, 8, 20, 24, 28, 32), [3, 4, 3, 4]),
    ],
)  # fmt: skip
def test_neighbours_are_cut_into_parts_of_about_one_size(
    offsets: Sequence[int], expected: list[int]
) -> None:
    assert lengths(sums(offsets)) == expected


def test_few_products_are_no_reason() -> None:
    assert lengths(sums((0, 4, 8), products=1)) == []


def test_what_follows_begins_where_the_run_before_ends() -> None:
    runs = list(dict.fromkeys(load_runs(body(sums((0, 4, 8), row=12)), 4, 16).values()))
    assert (runs[0].after, runs[1].after, runs[1].step) == (None, runs[0], 12)
    apart = list(dict.fromkeys(load_runs(body(sums((0, 4, 8))), 4, 16).values()))
    assert (apart[1].after, apart[1].step) == (apart[0], 64)


@pytest.mark.parametrize("between", ["store", "product"])
def test_loads_stay_behind_a_store_and_products_apart(between: str) -> None:
    builder = KernelBuilder("k", "K")
    values = []
    for n in range(3):
        values.append(builder.load(SCRATCH, 4 * n, F32, 4))
        if n == 1 and between == "store":
            builder.store(SCRATCH, 8, values[0])
        elif n == 1:
            values[0] = builder.op("fma", values[0], values[0], values[1])
    for _ in range(8):
        builder.op("fma", *values)
    assert sum(isinstance(statement, Load) for statement in builder.kernel.body) == 3
    assert load_runs(builder.kernel.body, 4, 16) == {}


@pytest.mark.parametrize("row", [12, 64, 640])
def test_one_instruction_reads_the_run_and_moves_the_address(row: int) -> None:
    text = codegen.assembly(sums((0, 4, 8), row), NEON)
    loads = [line for line in text.splitlines() if line.startswith("\tld1\t")]
    assert len(loads) == 2 and "\tldp\tq" not in text
    assert loads[0].endswith("], #48" if row == 12 else tuple(f", x{n}" for n in range(31)))


@pytest.mark.parametrize("products", [24, 28, 29, 33, 70])
def test_more_sums_than_registers(products: int) -> None:
    text = codegen.assembly(sums((0, 4, 8), products=products), NEON)
    assert text.count("\tld1\t") == 2


@pytest.mark.parametrize(("offsets", "products"), [((0, 4, 8), 3), ((0, 4, 8, 12, 16), 30)])
@pytest.mark.parametrize("row", [12, 64])
def test_results(offsets: Sequence[int], products: int, row: int) -> None:
    """Under the emulator too, where these instructions are."""
    kernel = sums(offsets, row, products)
    x = np.arange(int(str(kernel.buffers[0].elements)), dtype=np.float32) % 7
    got, want = (np.zeros(4 * products, np.float32) for _ in range(2))
    Native(kernel, host().isa)({"x": x, "y": got})
    run_kernel(kernel, {"x": x, "y": want})
    np.testing.assert_array_equal(got, want)

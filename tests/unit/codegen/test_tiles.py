"""Tile values: vectors in their place give what the interpreter does; the unit's instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from kernelmill.codegen.compile import assembly, llvm_ir
from kernelmill.core.dtype import F32, I32
from kernelmill.core.target.dot_units import TILE_BF16, TILE_BYTES, DotUnit
from kernelmill.core.target.isa import Isa, host_isa, why_not_here
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel, VType
from kernelmill.kernel.numeric import numpy_dtype
from kernelmill.kernel.verifier import verify_kernel
from tests.tile_unit import AMX, REAL
from tests.unit.codegen.native import TARGETS, Native

TASKS, STEPS = 2, 3


def product(unit: DotUnit, rows: int, columns: int, groups: int) -> Kernel:
    """Each task adds STEPS products of tiles to its sums, and swaps them with a second tile."""
    b = KernelBuilder("product", "MatMul", tasks=TASKS)
    depth = groups * unit.group
    left, right = VType(unit.a, depth, rows), VType(unit.b, columns * unit.group, groups)
    sums = VType(unit.sum, columns, rows)
    b.buffer("a", unit.a, rows * (STEPS * depth + 5), "in")
    b.buffer("b", unit.b, STEPS * groups * columns * unit.group * TASKS, "in")
    b.buffer("y", unit.sum, TASKS * rows * columns * 2, "inout")
    place = b.task * (rows * columns * 2)
    first = b.tile_load("y", place, sums, 2 * columns)
    with b.loop(0, STEPS, carry=[(sums, first), (sums, b.tile_zero(sums))]) as loop:
        x = b.tile_load("a", loop.index * depth, left, STEPS * depth + 5)
        at = (b.task * STEPS + loop.index) * (groups * columns * unit.group)
        y = b.tile_load("b", at, right, columns * unit.group)
        one, other = loop.carried
        loop.carry(b.dot(unit, x, y, other), one)
    for number, value in enumerate(loop.results):
        b.tile_store("y", place + number * columns, value, 2 * columns)
    verify_kernel(b.kernel)
    return b.kernel


def arrays(kernel: Kernel) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    found: dict[str, np.ndarray] = {}
    for buffer in kernel.buffers:
        kind = numpy_dtype(buffer.dtype)
        assert isinstance(buffer.elements, int)
        if buffer.dtype.is_float:
            numbers = rng.standard_normal(buffer.elements).astype(np.float32)
            # Some products and sums are denormal, some infinite, some nothing.
            numbers *= rng.choice([1, 1, 1, 1e-38, 1e-20, 1e30, 0], buffer.elements)
            found[buffer.name] = (
                numbers if buffer.dtype == F32 else (numbers.view("u4") >> 16).astype("u2")
            )
        else:
            found[buffer.name] = rng.integers(-(2**31), 2**31, buffer.elements).astype(kind)
    return found


def shapes() -> Iterator[tuple[DotUnit, int, int, int]]:
    for unit in (TILE_BF16, *TILE_BYTES):
        yield unit, 16, 16, 16
    for shape in ((1, 1, 1), (3, 5, 2), (16, 7, 3), (5, 16, 16)):
        yield TILE_BF16, *shape
        yield TILE_BYTES[1], *shape


@pytest.mark.parametrize(("unit", "rows", "columns", "groups"), list(shapes()))
@pytest.mark.parametrize("target", [*TARGETS.values(), host_isa()], ids=str)
def test_vectors_in_their_place_give_what_the_interpreter_does(
    target: Isa, unit: DotUnit, rows: int, columns: int, groups: int
) -> None:
    kernel = product(unit, rows, columns, groups)
    got, expected = arrays(kernel), arrays(kernel)
    Native(kernel, Isa(target.triple, target.cpu))(got, tasks=(0, TASKS))
    run_kernel(kernel, expected)
    np.testing.assert_array_equal(got["y"], expected["y"])
    assert not np.array_equal(expected["y"], arrays(kernel)["y"])


@REAL
@pytest.mark.parametrize(("unit", "rows", "columns", "groups"), list(shapes()))
def test_the_unit_gives_what_the_interpreter_does(
    unit: DotUnit, rows: int, columns: int, groups: int
) -> None:
    if reason := why_not_here(AMX):
        pytest.skip(reason)
    kernel = product(unit, rows, columns, groups)
    got, expected = arrays(kernel), arrays(kernel)
    Native(kernel, AMX)(got, tasks=(0, TASKS))
    run_kernel(kernel, expected)
    np.testing.assert_array_equal(got["y"], expected["y"])


def test_the_interpreter_refuses_rows_outside_of_a_buffer() -> None:
    kernel = product(TILE_BF16, 16, 16, 16)
    memory = arrays(kernel)
    kernel.buffers[0] = type(kernel.buffers[0])("a", kernel.buffers[0].dtype, 99, "in")
    with pytest.raises(IndexError, match="tile_load a"):
        run_kernel(kernel, memory)


@pytest.mark.parametrize("unit", [TILE_BF16, *TILE_BYTES], ids=lambda unit: unit.name)
def test_a_product_is_one_instruction_and_nothing_is_spilled(unit: DotUnit) -> None:
    text = assembly(product(unit, 16, 16, 16), AMX)
    names = {"tile_bf16": "tdpbf16ps", "tile_i8i8": "tdpbssd", "tile_i8u8": "tdpbsud"}
    name = names.get(unit.name, {"tile_u8i8": "tdpbusd", "tile_u8u8": "tdpbuud"}.get(unit.name, ""))
    assert len(re.findall(rf"\t{name}\t", text)) in (1, STEPS)
    assert "(%rsp" not in "".join(re.findall(r"\ttile(?:loadd|stored).*", text))


def two_by_two(depth: int) -> Kernel:
    """The usual loop: two tiles of rows by two of columns."""
    b = KernelBuilder("two_by_two", "MatMul", tasks=4)
    whole, sums = VType(TILE_BF16.a, 32, 16), VType(F32, 16, 16)
    b.buffer("a", TILE_BF16.a, 2 * depth * 512, "in")
    b.buffer("b", TILE_BF16.b, 8 * depth * 512, "in")
    b.buffer("y", F32, 4 * 32 * 32, "out")
    with b.loop(0, depth, carry=[(sums, b.tile_zero(sums)) for _ in range(4)]) as loop:
        left = [b.tile_load("a", (i * depth + loop.index) * 512, whole, 32) for i in range(2)]
        at = b.task * (2 * depth) + loop.index
        right = [b.tile_load("b", (at + i * depth) * 512, whole, 32) for i in range(2)]
        pairs = [(x, y) for x in left for y in right]
        products = zip(pairs, loop.carried, strict=True)
        loop.carry(*(b.dot(TILE_BF16, x, y, total) for (x, y), total in products))
    for number, value in enumerate(loop.results):
        place = b.task * 1024 + number // 2 * 512 + number % 2 * 16
        b.tile_store("y", place, value, 32)
    verify_kernel(b.kernel)
    return b.kernel


def test_the_inner_loop_is_four_loads_and_four_products() -> None:
    text = assembly(two_by_two(24), AMX)
    loops = re.findall(r"^\.LBB\S+:\n((?:\t(?!j).*\n)*)\tj", text, re.MULTILINE)
    (inner,) = (body for body in loops if "tdpbf16ps" in body)
    assert (inner.count("tileloadd"), inner.count("tdpbf16ps")) == (4, 4)
    assert "tilestored" not in inner and "rsp" not in inner


def test_tiles_are_configured_once_for_all_tasks_and_released() -> None:
    text = assembly(two_by_two(24), AMX)
    assert text.count("\tldtilecfg\t") == 1 == text.count("\ttilerelease\n")
    before = text[: text.index("ldtilecfg")]
    assert "tileloadd" not in before and not re.search(r"^\.LBB\S+:", before, re.MULTILINE)


def test_after_a_library_call_tiles_are_configured_anew() -> None:
    kernel = two_by_two(2)
    b = KernelBuilder("calls", "MatMul", tasks=4)
    b.kernel = kernel
    with b.reopen(kernel.body):
        b.store("y", b.task, b.op("lgamma", b.op("splat", 0.5, dtype=F32, lanes=1)))
        b.tile_store("y", b.task * 1024, b.tile_zero(VType(F32, 16, 16)), 32)
    text = assembly(kernel, AMX)
    before, *behind = re.split(r"\tcall", text)
    assert behind and "ldtilecfg" in before
    for part in behind:
        first = re.search(r"\t(tile(?:zero|loadd|stored)|tdpbf16ps|ldtilecfg)\t", part)
        assert first is None or first[1] == "ldtilecfg"


def test_two_by_two_tiles_are_right_without_the_unit() -> None:
    kernel = two_by_two(3)
    memory = arrays(kernel)
    rng = np.random.default_rng(1)
    for name in "ab":
        numbers = rng.standard_normal(len(memory[name])).astype(np.float32)
        memory[name] = (numbers.view("u4") >> 16).astype("u2")
    Native(kernel, Isa(host_isa().triple, host_isa().cpu))(memory, tasks=(0, 4))
    a, b = ((memory[name].astype(np.uint32) << 16).view(np.float32) for name in "ab")
    left = a.reshape(2, 3, 16, 32).transpose(0, 2, 1, 3).reshape(32, 96).astype(np.float64)
    right = b.reshape(4, 2, 3, 16, 16, 2).transpose(0, 2, 3, 5, 1, 4).reshape(4, 96, 32)
    expected = left @ right.astype(np.float64)
    np.testing.assert_allclose(memory["y"].reshape(4, 32, 32), expected, rtol=1e-5, atol=1e-4)


def turned(rows: int) -> Kernel:
    """Rows of words become columns in vectors, and then a tile."""
    b = KernelBuilder("turned", "MatMul")
    kind = VType(I32, rows, rows)
    b.buffer("a", I32, rows * rows, "in")
    b.buffer("y", I32, rows * rows, "inout")
    found = [b.load("a", row * rows, I32, rows) for row in range(rows)]
    for _ in range(rows.bit_length() - 1):
        pairs = zip(found[: rows // 2], found[rows // 2 :], strict=True)
        found = [b.op("interleave", *pair, half=half) for pair in pairs for half in (0, 1)]
    for row, value in enumerate(found):
        b.store("y", row * rows, value)
    b.tile_store("y", 0, b.tile_load("y", 0, kind, rows), rows)
    verify_kernel(b.kernel)
    return b.kernel


@pytest.mark.parametrize("rows", [4, 8, 16])
@pytest.mark.parametrize("target", [*TARGETS.values(), host_isa()], ids=str)
def test_rows_become_columns_without_the_unit(target: Isa, rows: int) -> None:
    kernel, isa = turned(rows), Isa(target.triple, target.cpu)
    memory = {"a": np.arange(rows * rows, dtype=np.int32), "y": np.zeros(rows * rows, np.int32)}
    Native(kernel, isa)(memory)
    np.testing.assert_array_equal(
        memory["y"].reshape(rows, rows), memory["a"].reshape(rows, rows).T
    )
    apart = f"call <{rows} x i32> @interleave." in llvm_ir(kernel, isa)
    assert apart == (rows * I32.bits > isa.vector_bits)

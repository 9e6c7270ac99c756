"""Loads, stores, gathers and scatters: masked, strided, of every element type."""

from __future__ import annotations

import mmap
import re

import numpy as np
import pytest

from kernelmill.codegen.compile import assembly, llvm_ir
from kernelmill.core.dim import Dim, Sym, of_atom
from kernelmill.core.dtype import BF16, BOOL, COMPUTABLE, F32, I32, I64, U8, DType
from kernelmill.core.target.isa import NAMED
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Kernel
from tests.unit.codegen.native import NUMPY, TARGETS, Native

LANES = 16


def numbers(dtype: DType, count: int) -> np.ndarray:
    if dtype == BOOL:
        return np.arange(count) % 3 == 0
    return (np.arange(count) * 7 % 113 + 1).astype(NUMPY[dtype.name])


def zeros(dtype: DType, count: int) -> np.ndarray:
    return np.zeros(count, NUMPY[dtype.name])


def at_page_end(array: np.ndarray) -> np.ndarray:
    """A copy whose last byte is the last of its mapping, so that reading on would fault."""
    pages = -(-array.nbytes // mmap.PAGESIZE)
    area = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    whole = np.frombuffer(area, np.uint8)
    end = (pages + 1) * mmap.PAGESIZE
    copy = whole[end - array.nbytes : end].view(array.dtype)
    copy[:] = array
    return copy


def masked_copy(dtype: DType, lanes: int) -> Kernel:
    """y[i] = x[i] for any number of elements, the last of them under a mask."""
    builder = KernelBuilder("copy", "Map")
    size = Sym("n", 0, None)
    builder.kernel.dims.append(size)
    count: Dim = of_atom(size)
    builder.buffer("x", dtype, count, "in")
    builder.buffer("y", dtype, count, "out")
    with builder.loop(0, count, lanes) as loop:
        left = builder.index(count - loop.index)
        mask = builder.op("lane_mask", left, lanes=lanes)
        value = builder.load("x", loop.index, dtype, lanes, mask)
        builder.store("y", loop.index, value, mask)
    return builder.kernel


@pytest.mark.parametrize("lanes", [LANES, 4 * LANES])
@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("dtype", COMPUTABLE, ids=str)
def test_masked_copy_touches_only_its_lanes(dtype: DType, level: int, lanes: int) -> None:
    native = Native(masked_copy(dtype, lanes), TARGETS[level])
    for length in (0, 1, lanes - 1, lanes, lanes + 1, 2 * lanes + 8):
        x = at_page_end(numbers(dtype, max(length, 1)))
        y = zeros(dtype, length + lanes + 4)
        native({"x": x, "y": y}, [length])
        np.testing.assert_array_equal(y[:length], x[:length])
        assert not y[length:].any()


@pytest.mark.parametrize(
    ("level", "branches"), [("v2", {U8, BF16, F32}), ("v3", {U8, BF16}), ("v4", set())]
)
def test_branches_for_many_lanes_are_functions(level: str, branches: set[DType]) -> None:
    """Where no instruction has a mask."""
    for dtype in (U8, BF16, F32):
        text = llvm_ir(masked_copy(dtype, 64), NAMED[f"x86-64-{level}"])
        few = llvm_ir(masked_copy(dtype, 16), NAMED[f"x86-64-{level}"])
        assert ("call void @masked_store." in text) == (dtype in branches), dtype
        assert " @masked_store." not in few


@pytest.mark.parametrize("dtype", COMPUTABLE, ids=str)
def test_masked_off_lanes_load_zero(dtype: DType) -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("m", BOOL, LANES, "in")
    builder.buffer("x", dtype, LANES, "in")
    builder.buffer("y", dtype, LANES, "out")
    mask = builder.load("m", 0, BOOL, LANES)
    builder.store("y", 0, builder.load("x", 0, dtype, LANES, mask))
    m, x = np.arange(LANES) % 2 == 0, numbers(dtype, LANES)
    y = zeros(dtype, LANES) + NUMPY[dtype.name](1)
    Native(builder.kernel)({"m": m, "x": x, "y": y})
    np.testing.assert_array_equal(y, np.where(m, x, np.zeros_like(x)))


@pytest.mark.parametrize("dtype", [F32, BOOL, U8], ids=str)
def test_scalars_load_and_store_under_a_mask(dtype: DType) -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("m", BOOL, 8, "in")
    builder.buffer("x", dtype, 8, "in")
    builder.buffer("y", dtype, 8, "inout")
    with builder.loop(0, 8) as loop:
        mask = builder.load("m", loop.index, BOOL)
        value = builder.load("x", loop.index, dtype, mask=mask)
        builder.store("y", loop.index, value, mask=mask)
    m, x = np.arange(8) % 2 == 0, numbers(dtype, 8)
    y = np.ones(8, NUMPY[dtype.name])
    Native(builder.kernel)({"m": m, "x": x, "y": y})
    np.testing.assert_array_equal(y, np.where(m, x, np.ones_like(x)))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("stride", [-3, -1, 2, 3, 5])
@pytest.mark.parametrize("dtype", COMPUTABLE, ids=str)
def test_constant_strides(dtype: DType, stride: int, masked: bool) -> None:
    x, y = _strided(dtype, stride, None, masked)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("stride", [-1, 1, 4])
@pytest.mark.parametrize("dtype", [F32, BOOL, I64], ids=str)
def test_symbolic_strides(dtype: DType, stride: int, masked: bool) -> None:
    x, y = _strided(dtype, of_atom(Sym("s", -100, None)), stride, masked)
    np.testing.assert_array_equal(y, x)


def _strided(
    dtype: DType, stride: Dim, value: int | None, masked: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Copy with a strided load into y, and on to z with a strided store; (wanted, got) of both."""
    step = value if value is not None else int(str(stride))
    span = abs(step) * (LANES - 1) + 1
    start = span - 1 if step < 0 else 0
    builder = KernelBuilder("kernel", "Map")
    if value is not None:
        builder.kernel.dims.append(Sym("s", -100, None))
    builder.buffer("x", dtype, span, "in")
    builder.buffer("y", dtype, LANES, "out")
    builder.buffer("z", dtype, span, "out")
    live = 11 if masked else LANES
    mask = builder.op("lane_mask", builder.index(live), lanes=LANES) if masked else None
    loaded = builder.load("x", start, dtype, LANES, mask, stride)
    builder.store("y", 0, loaded)
    builder.store("z", start, loaded, mask, stride)
    x, y, z = at_page_end(numbers(dtype, span)), zeros(dtype, LANES), zeros(dtype, span)
    Native(builder.kernel)({"x": x, "y": y, "z": z}, [] if value is None else [step])
    picked = start + step * np.arange(live)
    wanted, spread = zeros(dtype, LANES), zeros(dtype, span)
    wanted[:live], spread[picked] = x[picked], x[picked]
    return np.concatenate([wanted, spread]), np.concatenate([y, z])


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("offsets", [I32, I64], ids=str)
@pytest.mark.parametrize("dtype", COMPUTABLE, ids=str)
def test_gather(dtype: DType, offsets: DType, masked: bool, level: int) -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", dtype, 40, "in")
    builder.buffer("o", offsets, LANES, "in")
    builder.buffer("y", dtype, LANES, "out")
    mask = builder.op("lane_mask", builder.index(9), lanes=LANES) if masked else None
    places = builder.load("o", 0, offsets, LANES)
    builder.store("y", 0, builder.gather("x", 20, places, dtype, mask))
    o = np.array([0, -20, 19, 3, 3, -1, 7, 8, 2, 1, 0, 5, -7, -9, 11, 4], NUMPY[offsets.name])
    x, y = numbers(dtype, 40), zeros(dtype, LANES)
    if masked:
        o[9:] = 2**31 - 1
    Native(builder.kernel, TARGETS[level])({"x": x, "o": o, "y": y})
    live = 9 if masked else LANES
    np.testing.assert_array_equal(y[:live], x[20 + o[:live]])
    assert not y[live:].any()


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", COMPUTABLE, ids=str)
def test_scatter_writes_in_lane_order(dtype: DType, masked: bool, level: int) -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", dtype, LANES, "in")
    builder.buffer("o", I64, LANES, "in")
    builder.buffer("y", dtype, 40, "inout")
    mask = builder.op("lane_mask", builder.index(9), lanes=LANES) if masked else None
    places = builder.load("o", 0, I64, LANES)
    builder.scatter("y", 20, places, builder.load("x", 0, dtype, LANES), mask)
    o = np.array([0, -20, 19, 3, 3, -1, 7, 3, 2, 1, 0, 5, -7, -9, 3, 4])
    x, y = numbers(dtype, LANES), zeros(dtype, 40)
    wanted = y.copy()
    for lane in range(9 if masked else LANES):
        wanted[20 + o[lane]] = x[lane]
    Native(builder.kernel, TARGETS[level])({"x": x, "o": o, "y": y})
    np.testing.assert_array_equal(y, wanted)


def test_scalar_gather_and_scatter() -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", F32, 10, "in")
    builder.buffer("o", I64, 10, "in")
    builder.buffer("y", F32, 10, "out")
    with builder.loop(0, 10) as loop:
        place = builder.load("o", loop.index, I64)
        value = builder.gather("x", 0, place, F32)
        builder.scatter("y", 0, builder.op("sub", 9, place), value)
    x, o, y = numbers(F32, 10), np.random.default_rng(0).permutation(10), zeros(F32, 10)
    Native(builder.kernel)({"x": x, "o": o, "y": y})
    np.testing.assert_array_equal(y, x[::-1])


def test_scratch_is_addressed_by_the_type_of_each_access() -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.kernel.scratch = 256
    builder.buffer("x", F32, LANES, "in")
    builder.buffer("y", F32, LANES, "out")
    builder.buffer("z", U8, 64, "out")
    builder.store("scratch", LANES, builder.load("x", 0, F32, LANES))
    builder.store("y", 0, builder.load("scratch", LANES, F32, LANES))
    builder.store("z", 0, builder.load("scratch", 64, U8, 64))
    x, y, z = numbers(F32, LANES), zeros(F32, LANES), zeros(U8, 64)
    Native(builder.kernel)({"x": x, "y": y, "z": z}, scratch=256)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, x.view(np.uint8))


def test_any_byte_but_zero_is_true() -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", BOOL, LANES, "in")
    builder.buffer("y", BOOL, LANES, "out")
    builder.store("y", 0, builder.load("x", 0, BOOL, LANES))
    x, y = np.arange(LANES, dtype=np.uint8), np.zeros(LANES, np.uint8)
    Native(builder.kernel)({"x": x, "y": y})
    np.testing.assert_array_equal(y, (x != 0).astype(np.uint8))


def test_in_place_kernel_reads_before_it_writes() -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", I32, 64, "inout")
    with builder.loop(0, 64, LANES) as loop:
        value = builder.load("x", loop.index, I32, LANES)
        builder.store("x", loop.index, builder.op("add", value, value))
        again = builder.load("x", loop.index, I32, LANES)
        builder.store("x", loop.index, builder.op("add", again, 1))
    x = np.arange(64, dtype=np.int32)
    wanted = x * 2 + 1
    Native(builder.kernel)({"x": x})
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("level", TARGETS)
def test_prefetching_beyond_a_buffer_does_nothing(level: int) -> None:
    builder = KernelBuilder("ahead", "Map")
    builder.buffer("x", F32, 16, "in")
    builder.buffer("y", F32, 16, "out")
    for index in (0, 15, 16, 1 << 40, -(1 << 40)):
        builder.prefetch("x", index)
    builder.store("y", 0, builder.load("x", 0, F32, 16))
    x, y = at_page_end(numbers(F32, 16)), zeros(F32, 16)
    native = Native(builder.kernel, TARGETS[level])
    text = assembly(builder.kernel, TARGETS[level])
    assert len(re.findall(r"^\t(?:prefetch|prfu?m)", text, re.MULTILINE)) == 5
    native({"x": x, "y": y}, [])
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize(("target", "masked"), [("x86-64-v3", False), ("x86-64-v4", True)])
def test_what_is_chosen_where_it_was_read_is_stored_whole_where_that_is_quicker(
    target: str, masked: bool
) -> None:
    b = KernelBuilder("k", "K")
    b.buffer("x", F32, 64, "inout")
    lanes = NAMED[target].lanes(F32)
    with b.loop(0, 4) as loop:
        value = b.load("x", loop.index * lanes, F32, lanes)
        chosen = b.op("select", b.op("gt", value, 1.0), value, -2.0)
        b.store("x", loop.index * lanes, chosen)
    text = assembly(b.kernel, NAMED[target])
    assert ("vmaskmov" in text or "{%k1}" in text) is masked

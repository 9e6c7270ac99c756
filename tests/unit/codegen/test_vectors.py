"""Making vectors, taking them apart, folding them."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmill.core.dtype import BF16, BOOL, COMPUTABLE, F32, F64, I8, I32, I64, U8, DType
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from tests.unit.codegen.native import NUMPY, TARGETS, Native


def produce(dtype: DType, lanes: int, make) -> np.ndarray:  # type: ignore[no-untyped-def]
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("y", dtype, lanes, "out")
    value: Value = make(builder)
    builder.store("y", 0, value)
    y = np.zeros(lanes, NUMPY[dtype.name])
    Native(builder.kernel)({"y": y})
    return y


@pytest.mark.parametrize("dtype", [F64, F32, I64, I32, I8, U8], ids=str)
@pytest.mark.parametrize("lanes", [1, 2, 5, 16, 64])
def test_iota(dtype: DType, lanes: int) -> None:
    got = produce(dtype, lanes, lambda b: b.op("iota", dtype=dtype, lanes=lanes))
    np.testing.assert_array_equal(got, np.arange(lanes))


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("lanes", [1, 4, 16, 64, 128])
def test_lane_mask_for_any_count(lanes: int, level: int) -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("n", I64, 1, "in")
    builder.buffer("y", BOOL, lanes, "out")
    mask = builder.op("lane_mask", builder.load("n", 0, I64), lanes=lanes)
    builder.store("y", 0, mask)
    native = Native(builder.kernel, TARGETS[level])
    for count in (-(2**62), -1, 0, 1, lanes - 1, lanes, lanes + 1, 2**32, 2**62):
        y = np.ones(lanes, np.bool_)
        native({"n": np.array([count]), "y": y})
        np.testing.assert_array_equal(y, np.arange(lanes) < count)


@pytest.mark.parametrize("dtype", COMPUTABLE, ids=str)
def test_slice_concat_extract_splat(dtype: DType) -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", dtype, 16, "in")
    builder.buffer("n", I64, 1, "in")
    builder.buffer("y", dtype, 16, "out")
    builder.buffer("z", dtype, 8, "out")
    builder.buffer("w", dtype, 3, "out")
    x = builder.load("x", 0, dtype, 16)
    low, high = builder.op("slice", x, lanes=8, start=0), builder.op("slice", x, lanes=8, start=8)
    builder.store("y", 0, builder.op("concat2", high, low, lanes=16))
    at = builder.load("n", 0, I64)
    builder.store("z", 0, builder.op("splat", builder.op("extract", x, at), lanes=8))
    pair = builder.op("concat2", builder.op("extract", x, 3), builder.op("extract", x, 5), lanes=2)
    builder.store("w", 0, builder.op("concat2", pair, builder.op("extract", x, 7), lanes=3))
    source = np.arange(16).astype(NUMPY[dtype.name])
    y, z, w = (np.zeros(count, source.dtype) for count in (16, 8, 3))
    Native(builder.kernel)({"x": source, "n": np.array([11]), "y": y, "z": z, "w": w})
    np.testing.assert_array_equal(y, np.roll(source, 8))
    np.testing.assert_array_equal(z, np.full(8, source[11]))
    np.testing.assert_array_equal(w, source[[3, 5, 7]])


@pytest.mark.parametrize("lanes", [2, 16])
def test_interleave_halves(lanes: int) -> None:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", I32, 2 * lanes, "in")
    builder.buffer("y", I32, 2 * lanes, "out")
    a, b = (builder.load("x", start, I32, lanes) for start in (0, lanes))
    for half in (0, 1):
        builder.store("y", half * lanes, builder.op("interleave", a, b, half=half))
    x, y = np.arange(2 * lanes, dtype=np.int32), np.zeros(2 * lanes, np.int32)
    Native(builder.kernel)({"x": x, "y": y})
    np.testing.assert_array_equal(y, x.reshape(2, lanes).T.ravel())


def tree(values: np.ndarray, fold) -> np.generic:  # type: ignore[no-untyped-def]
    """The documented order: the upper half onto the lower until one is left."""
    while len(values) > 1:
        half = (len(values) + 1) // 2
        rest = len(values) - half
        values = np.concatenate([fold(values[:rest], values[half:]), values[rest:half]])
    return values[0]


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("lanes", [1, 2, 3, 6, 16, 32])
@pytest.mark.parametrize("dtype", [F32, F64, I64, I32, I8, U8], ids=str)
def test_reductions_keep_their_order(dtype: DType, lanes: int, level: int) -> None:
    rng = np.random.default_rng(lanes)
    kind = NUMPY[dtype.name]
    x = (rng.normal(size=lanes) * 30).astype(np.int64).astype(kind)
    if dtype.is_float:
        x = (rng.normal(size=lanes) * 10.0 ** rng.integers(-3, 5, lanes)).astype(kind)
    with np.errstate(all="ignore"):
        wanted = {
            "reduce_add": tree(x, np.add),
            "reduce_mul": tree(x, np.multiply),
            "reduce_max": x.max(),
            "reduce_min": x.min(),
        }
    for op, value in wanted.items():
        assert reduced(op, x, dtype, level) == value


def reduced(op: str, x: np.ndarray, dtype: DType, level: int) -> np.generic:
    builder = KernelBuilder("kernel", "Map")
    builder.buffer("x", dtype, len(x), "in")
    builder.buffer("y", dtype, 1, "out")
    builder.store("y", 0, builder.op(op, builder.load("x", 0, dtype, len(x))))
    y = np.zeros(1, x.dtype)
    Native(builder.kernel, TARGETS[level])({"x": x, "y": y})
    return y[0]


@pytest.mark.parametrize("position", range(4))
def test_reductions_keep_nan(position: int) -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    x[position] = np.nan
    for op in ("reduce_max", "reduce_min", "reduce_add"):
        assert np.isnan(reduced(op, x, F32, max(TARGETS)))


@pytest.mark.parametrize("dtype", [BOOL, I32, U8], ids=str)
def test_bit_reductions(dtype: DType) -> None:
    for x in (np.array([1, 1, 1, 1]), np.array([0, 1, 0, 0]), np.array([0, 0, 0, 0])):
        values = x.astype(NUMPY[dtype.name])
        assert reduced("reduce_and", values, dtype, max(TARGETS)) == values.all()
        assert reduced("reduce_or", values, dtype, max(TARGETS)) == values.any()


@pytest.mark.parametrize(
    ("value", "bits"), [(1.0, 0x3F80), (1.00390625, 0x3F80), (1.01171875, 0x3F82)]
)
def test_half_literals_round_to_even(value: float, bits: int) -> None:
    got = produce(BF16, 4, lambda b: b.op("splat", value, dtype=BF16, lanes=4))
    assert (got == bits).all()

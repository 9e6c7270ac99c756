"""Masks whose lanes LLVM can compute: it has had them wrong in more than one place.

Every mask has one use, because it is then that LLVM simplifies it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kernelmill.core.dtype import BF16, BOOL, F32, F64, I16, I32, I64, U8, DType
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from tests.unit.codegen.native import NUMPY, TARGETS, Native

Mask = tuple[np.ndarray, Callable[[KernelBuilder], Value]]
"""The lanes that are on, and what builds them."""

COMPARISONS = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
KINDS = ("load", "load2", "gather", "select", "store", "store2", "scatter", "narrowed")


def numbers(dtype: DType, count: int) -> np.ndarray:
    if dtype == BOOL:
        return np.arange(count) % 3 > 0
    return (np.arange(count) * 7 % 113 + 1).astype(NUMPY[dtype.name])


def build(kind: str, dtype: DType, lanes: int, masks: list[Mask]) -> KernelBuilder:
    """One access of this kind for each mask; its result is a row of y."""
    builder = KernelBuilder("masks", "Map")
    builder.buffer("x", dtype, 3 * lanes, "in")
    builder.buffer("o", I64, lanes, "in")
    builder.buffer("w", I64, lanes, "in")
    builder.buffer("y", dtype, 2 * lanes * len(masks), "inout")
    for row, (_, make) in enumerate(masks):
        mask, at = make(builder), row * 2 * lanes
        x = builder.load("x", 0, dtype, lanes)
        offsets = builder.load("o", 0, I64, lanes)
        if kind == "load":
            builder.store("y", at, builder.load("x", 1, dtype, lanes, mask))
        elif kind == "load2":
            builder.store("y", at, builder.load("x", 1, dtype, lanes, mask, 2))
        elif kind == "gather":
            builder.store("y", at, builder.gather("x", 0, offsets, dtype, mask))
        elif kind == "select":
            other = builder.load("x", lanes, dtype, lanes)
            builder.store("y", at, builder.op("select", mask, x, other))
        elif kind == "store":
            builder.store("y", at, x, mask)
        elif kind == "store2":
            builder.store("y", at, x, mask, 2)
        elif kind == "scatter":
            builder.scatter("y", at, offsets, x, mask)
        else:
            wide = builder.load("w", 0, I64, lanes)
            builder.store("y", at, builder.op("cast", wide, dtype=dtype), mask)
    return builder


def expected(kind: str, live: np.ndarray, x: np.ndarray, o: np.ndarray) -> np.ndarray:
    lanes = len(live)
    row, zero = np.zeros(2 * lanes, x.dtype), np.zeros(lanes, x.dtype)
    first = x[:lanes]
    values = {
        "load": np.where(live, x[1 : lanes + 1], zero),
        "load2": np.where(live, x[1 : 2 * lanes : 2], zero),
        "gather": np.where(live, x[o], zero),
        "select": np.where(live, first, x[lanes : 2 * lanes]),
    }
    if kind in values:
        row[:lanes] = values[kind]
    elif kind == "store2":
        row[::2] = np.where(live, first, zero)
    elif kind == "scatter":
        row[o[live]] = first[live]
    else:
        row[:lanes] = np.where(live, first, zero)
    return row


def check(kind: str, dtype: DType, lanes: int, level: int, masks: list[Mask]) -> None:
    x, o = numbers(dtype, 3 * lanes), np.arange(lanes)[::-1].copy()
    y = np.zeros(2 * lanes * len(masks), x.dtype)
    if kind == "narrowed":
        x = (np.arange(3 * lanes) % 2).astype(x.dtype)
    w = x[:lanes].astype(np.int64)
    if dtype == BF16 and kind == "narrowed":
        x = np.array([0, 0x3F80] * 3 * lanes, np.uint16)[: 3 * lanes]
        w = np.arange(lanes) % 2
    native = Native(build(kind, dtype, lanes, masks).kernel, TARGETS[level])
    native({"x": x, "o": o, "w": w, "y": y})
    wanted = np.concatenate([expected(kind, live, x, o) for live, _ in masks])
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [F64, F32, BF16, U8, BOOL], ids=str)
def test_lane_masks_of_known_counts(dtype: DType, kind: str, level: int) -> None:
    for lanes in (8, 16):
        masks: list[Mask] = [
            (np.arange(lanes) < n, lambda b, n=n, k=lanes: b.op("lane_mask", b.index(n), lanes=k))
            for n in sorted({-3, 0, 1, 2, lanes - 1, lanes, lanes + 4})
        ]
        check(kind, dtype, lanes, level, masks)


def compared(op: str, start: int, index: DType, lanes: int) -> Mask:
    def make(b: KernelBuilder) -> Value:
        moved = b.op(
            "add",
            b.op("iota", dtype=index, lanes=lanes),
            b.op("splat", start, dtype=index, lanes=1),
        )
        return b.op(op, moved, b.op("splat", 0, dtype=index, lanes=lanes))

    return COMPARISONS[op](np.arange(lanes) + start, 0), make


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [F64, F32, I16], ids=str)
def test_compared_lane_numbers(dtype: DType, kind: str, level: int) -> None:
    index = I64 if dtype == F64 else I32
    for lanes in (8, 16):
        masks = [compared(op, start, index, lanes) for op in COMPARISONS for start in (-3, 0, 2)]
        check(kind, dtype, lanes, level, masks)


@pytest.mark.parametrize("level", TARGETS)
@pytest.mark.parametrize("literal", [True, False])
def test_lanes_that_are_off_are_not_loaded_beside_a_scatter(literal: bool, level: int) -> None:
    # The one combination seen so far in which LLVM loses the canonical form of a constant mask.
    builder = KernelBuilder("masks", "Map")
    builder.kernel.scratch = 64
    builder.buffer("x", F64, 8, "in")
    builder.buffer("y", F64, 16, "inout")
    if literal:
        mask = builder.op("lane_mask", builder.index(-3), lanes=8)
    else:
        low = builder.op("min", builder.op("splat", -3, dtype=I64, lanes=1), 8)
        count = builder.op("cast", builder.op("max", low, 0), dtype=I32)
        iota = builder.op("iota", dtype=I32, lanes=8)
        mask = builder.op("lt", iota, builder.op("splat", count, lanes=8))
    value = builder.load("x", 0, F64, 8, mask)
    builder.store("scratch", 0, value)
    again = builder.load("scratch", 0, F64, 8)
    builder.store("y", 0, value)
    builder.store("y", 0, value, mask, 2)
    builder.store("y", 0, again, mask)
    x, y = np.arange(1.0, 9.0), np.ones(16)
    Native(builder.kernel, TARGETS[level])({"x": x, "y": y}, scratch=64)
    np.testing.assert_array_equal(y, [0.0] * 8 + [1.0] * 8)

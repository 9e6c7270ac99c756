"""Pieces of f32 numbers, their magnitudes, and which of them are ordinary, by the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kernelmill.core.dtype import BF16, BOOL, F32
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Value
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.emit.pieces import PIECES, Magnitudes, are_ordinary, piece

Floats = np.ndarray[tuple[int], np.dtype[np.float32]]


def computed(values: Floats, emit: Callable[[KernelBuilder, Value], Value]) -> np.ndarray:
    """What is emitted for a vector of so many numbers."""
    b = KernelBuilder("k", "Pieces")
    count = len(values)
    b.buffer("x", F32, count, "in")
    result = emit(b, b.load("x", 0, F32, count))
    made = result.type
    b.buffer("y", made.dtype, made.lanes, "out")
    b.store("y", 0, result)
    verify_kernel(b.kernel)
    types = {BF16: np.uint16, F32: np.float32, BOOL: np.bool_}
    found = np.zeros(made.lanes, types[made.dtype])
    run_kernel(b.kernel, {"x": values, "y": found})
    return found


def numbers(count: int = 512) -> Floats:
    rng = np.random.default_rng(0)
    powers = 2.0 ** rng.integers(-102, 126, count)
    return (rng.uniform(1, 2, count) * powers * rng.choice([-1, 1], count)).astype(np.float32)


def pieces(values: Floats) -> list[np.ndarray]:
    bits = [computed(values, lambda b, x, n=n: piece(b, x, n)) for n in range(3)]
    return [(part.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for part in bits]


def test_a_number_is_the_sum_of_its_pieces() -> None:
    values = numbers()
    high, middle, low = pieces(values)
    assert np.array_equal(high + middle + low, values.astype(np.float64))
    assert (np.abs(middle) <= 2.0**-8 * np.abs(values)).all()
    assert (np.abs(low) <= 2.0**-17 * np.abs(values)).all()
    assert (np.abs(low[low != 0]) >= 2.0**-126).all()


def test_magnitudes_are_those_of_numbers_that_are_not_zero() -> None:
    def ends(b: KernelBuilder, x: Value) -> Value:
        found = Magnitudes.of(b, x).joined(b, Magnitudes.none(b, x.type.lanes)).reduced(b)
        return b.op("concat2", found.least, found.most)

    def found(*values: float) -> list[float]:
        return computed(np.array(values, np.float32), ends).tolist()

    assert found(-3, 0, 2, -0.0) == [2, 3]
    assert found(0, -0.0) == [np.inf, 0]
    assert found(2.0**-149, -np.inf) == [2.0**-149, np.inf]
    assert np.isnan(found(1, np.nan)[1])


@pytest.mark.parametrize("products", PIECES)
def test_what_is_ordinary(products: int) -> None:
    kind, depth = PIECES[products], 64

    def ordinary(a: tuple[float, float], c: tuple[float, float]) -> bool:
        def emit(b: KernelBuilder, x: Value) -> Value:
            ends = [b.op("extract", x, lane) for lane in range(4)]
            return are_ordinary(b, kind, Magnitudes(*ends[:2]), Magnitudes(*ends[2:]), depth)

        return bool(computed(np.array([*a, *c], np.float32), emit)[0])

    one, zeros = (1.0, 1.0), (np.inf, 0.0)
    assert ordinary(one, one) and ordinary(zeros, one) and ordinary(zeros, zeros)
    for most, wanted in ((2.0**120, True), (2.0**121, False), (np.inf, False), (np.nan, False)):
        assert ordinary((1.0, most), one) == ordinary(one, (1.0, most)) == wanted
        assert ordinary((1.0, most), zeros) == (most < np.inf)
    least = max(kind.least, kind.least_product)
    for size, wanted in ((least, True), (least / 2, False), (2.0**-149, False)):
        assert ordinary((size, 1.0), one) == ordinary(one, (size, 1.0)) == wanted
    assert not ordinary((kind.least / 2, 1.0), (2.0**60, 2.0**60))
    assert not ordinary((2.0**-60, 1.0), (2.0**-60, 1.0))

"""`dot` of bf16 on every kind of processor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelmill.codegen.compile import assembly
from kernelmill.core.dtype import F32, I32
from kernelmill.core.target.dot_units import BF16_PAIRS, BFDOT, DotUnit
from kernelmill.core.target.isa import NAMED, Isa, host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.numeric import dot
from tests.unit.codegen.native import TARGETS, run_map


def words(seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed).standard_normal((64, 2)).astype(np.float32)
    numbers[:3] = [[np.inf, 1], [0, -0.0], [1, np.nan]]
    return (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.int32)[:, 0]


def upper(words: np.ndarray) -> np.ndarray:
    return (words & -0x10000).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("target", [*TARGETS.values(), host_isa()], ids=str)
def test_each_product_is_rounded_once(target: Isa, lanes: int) -> None:
    a, b = words(1), words(2)
    c = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    got = run_map(
        lambda builder, *args: builder.dot(BF16_PAIRS, *args), [a, b, c], [I32, I32, F32],
        F32, lanes, target,
    )  # fmt: skip
    # A product of two bf16 numbers is exact in f32, and so is the sum before rounding in f64.
    first = (c + upper(a) * upper(b)).astype(np.float32)
    expected = (first + upper(a << 16) * upper(b << 16)).astype(np.float32)
    np.testing.assert_array_equal(got, expected)


def near_the_least_normal() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words and sums whose results are around 2^-126, on both sides of where they are denormal."""
    rng = np.random.default_rng(4)
    x = rng.integers(0, 1 << 16, (4096, 2), dtype=np.uint16)
    x[:2048] = x[:2048] & 0x807F | 0x0080 * rng.integers(0, 3, (2048, 2), dtype=np.uint16)
    y = rng.choice([0x3F80, 0xBF80, 0x3F7F, 0x4000, 0x3F00, 0x2F81], (4096, 2)).astype(np.uint16)
    c = rng.integers(0, 3 << 23, 4096, dtype=np.uint32) | rng.choice([0, 1 << 31], 4096).astype(
        "u4"
    )
    # 2^-126 less 2^-151 rounds up to 2^-126; less 2^-150 it does not, had exponents no end.
    x[:2], y[:2], c[:2] = [[0, 0x1280], [0, 0x1300]], [0, 0xA100], 0x00800000
    words = (np.ascontiguousarray(half).view(np.int32)[:, 0] for half in (x, y))
    return (*words, c.view(np.float32))


def compiled_and_interpreted(
    unit: DotUnit, target: Isa, a: np.ndarray, b: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(all="ignore"):
        expected = dot(unit, a, b, c)
    got = run_map(
        lambda builder, *args: builder.dot(unit, *args), [a, b, c], [I32, I32, F32], F32, 16, target
    )
    return got, expected


@pytest.mark.parametrize("unit", [BF16_PAIRS, BFDOT], ids=lambda unit: unit.name)
@pytest.mark.parametrize("target", [*TARGETS.values(), host_isa()], ids=str)
def test_denormals_are_zeros_as_the_interpreter_has_it(target: Isa, unit: DotUnit) -> None:
    got, expected = compiled_and_interpreted(unit, target, *near_the_least_normal())
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), ~numbers)
    np.testing.assert_array_equal(got.view(np.int32)[numbers], expected.view(np.int32)[numbers])
    # To odd, the denormal product is a zero before it is added.
    assert expected[:2].tolist() == [2.0**-126, 0.0 if unit == BF16_PAIRS else 2.0**-126]
    assert (expected.view(np.int32) & 0x7FFFFFFF == 0).sum() > 50


@pytest.mark.parametrize("target", [*TARGETS.values(), host_isa()], ids=str)
def test_sums_to_odd_are_the_interpreters_to_the_last_bit(target: Isa) -> None:
    rng = np.random.default_rng(5)
    # Exponents in a narrow range, and of all kinds: infinities, NaN and overflows among them.
    near, wide = rng.integers(0x3F00, 0x4180, (2, 4096)), rng.integers(0, 0x7FFF, (2, 4096))
    halves = np.concatenate([near, wide], axis=1).astype(np.uint16)
    halves |= rng.choice([0, 1 << 15], halves.shape).astype(np.uint16)
    a, b = (np.ascontiguousarray(half).view(np.int32) for half in halves)
    c = rng.standard_normal(4096).astype(np.float32)
    got, expected = compiled_and_interpreted(BFDOT, target, a, b, c)
    np.testing.assert_array_equal(got, expected)


def sixteen_sums(unit: DotUnit) -> Kernel:
    builder = KernelBuilder("k", "Dot")
    builder.buffer("x", I32, 16, "in")
    builder.buffer("y", F32, 16, "inout")
    word, total = builder.load("x", 0, I32, 16), builder.load("y", 0, F32, 16)
    builder.store("y", 0, builder.dot(unit, word, word, total))
    return builder.kernel


def test_it_is_one_instruction_where_there_is_one() -> None:
    kernel = sixteen_sums(BF16_PAIRS)
    paired = replace(NAMED["x86-64-v4"], features=("avx512bf16",))
    assert assembly(kernel, paired).count("vdpbf16ps") == 1
    plain = assembly(kernel, NAMED["x86-64-v4"])
    assert "vdpbf16ps" not in plain and plain.count("vfmadd") == 4


def test_it_is_one_instruction_of_aarch64_for_each_vector() -> None:
    kernel = sixteen_sums(BFDOT)
    assert assembly(kernel, NAMED["aarch64-v8.6"]).count("bfdot") == 4
    assert "bfdot" not in assembly(kernel, NAMED["aarch64-v8.2-dotprod"])

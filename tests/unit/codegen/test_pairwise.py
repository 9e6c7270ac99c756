"""dot2 on every kind of processor, against the interpreter's formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelmill.codegen.compile import assembly
from kernelmill.core.dtype import F32, I32
from kernelmill.core.isa import NAMED, Isa, host_isa
from kernelmill.kernel.builder import KernelBuilder
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
        lambda builder, *args: builder.op("dot2", *args, dtype=F32), [a, b, c], [I32, I32, F32],
        F32, lanes, target,
    )  # fmt: skip
    # A product of two bf16 numbers is exact in f32, and so is the sum before rounding in f64.
    first = (c + upper(a) * upper(b)).astype(np.float32)
    expected = (first + upper(a << 16) * upper(b << 16)).astype(np.float32)
    np.testing.assert_array_equal(got, expected)


def test_it_is_one_instruction_where_there_is_one() -> None:
    builder = KernelBuilder("k", "Dot")
    builder.buffer("x", I32, 16, "in")
    builder.buffer("y", F32, 16, "inout")
    word, total = builder.load("x", 0, I32, 16), builder.load("y", 0, F32, 16)
    builder.store("y", 0, builder.op("dot2", word, word, total, dtype=F32))
    paired = replace(NAMED["x86-64-v4"], features=("avx512bf16",))
    assert assembly(builder.kernel, paired).count("vdpbf16ps") == 1
    plain = assembly(builder.kernel, NAMED["x86-64-v4"])
    assert "vdpbf16ps" not in plain and plain.count("vfmadd") == 2

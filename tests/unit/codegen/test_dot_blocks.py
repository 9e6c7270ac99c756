"""`dot` of blocks, two rows by two columns of sums in a vector, on every kind of processor."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernelmill.codegen.compile import assembly
from kernelmill.core.dtype import F32, I32, I64, U8
from kernelmill.core.target.dot_units import BFDOT, BFMMLA, BLOCK_BYTES, DotUnit
from kernelmill.core.target.isa import NAMED, Isa, host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.interpreter import run_kernel
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.numeric import dot
from tests.unit.codegen.native import TARGETS, Native
from tests.unit.codegen.test_dot_bf16 import near_the_least_normal

UNITS = (*BLOCK_BYTES, BFMMLA)


def blocks_kernel(unit: DotUnit, count: int) -> Kernel:
    """`count` blocks of sums, each of two words of a and two of b."""
    b = KernelBuilder("blocks", "Dot")
    b.buffer("a", I64, 2 * count, "in")
    b.buffer("b", I64, 2 * count, "in")
    b.buffer("c", unit.sum, 4 * count, "inout")
    with b.loop(0, count) as loop:
        left, right = (b.load(name, loop.index * 2, I64, 2) for name in "ab")
        total = b.load("c", loop.index * 4, unit.sum, 4)
        b.store("c", loop.index * 4, b.dot(unit, left, right, total))
    return b.kernel


def both(
    unit: DotUnit, target: Isa, a: np.ndarray, b: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The sums of compiled code, and those of the interpreter."""
    kernel = blocks_kernel(unit, len(c) // 4)
    got, meant = c.copy(), c.copy()
    Native(kernel, target)({"a": a, "b": b, "c": got})
    with np.errstate(all="ignore"):
        run_kernel(kernel, {"a": a, "b": b, "c": meant})
    return got, meant


@pytest.mark.parametrize("unit", BLOCK_BYTES, ids=lambda unit: unit.name)
@pytest.mark.parametrize("target", [*TARGETS.values(), host_isa()], ids=str)
def test_bytes_are_exact(target: Isa, unit: DotUnit) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 256, (2, 40, 2, 8), dtype=np.uint8)
    a[:2], b[:2] = [[255], [128]], [[128], [255]]
    c = rng.integers(-(1 << 31), 1 << 31, (40, 2, 2)).astype(np.int32)
    c[0] = 0x7FFFFFFF
    left, right = (
        x.view(np.uint8 if kind == U8 else np.int8).astype(np.int64)
        for x, kind in ((a, unit.a), (b, unit.b))
    )
    expected = (np.einsum("nik,njk->nij", left, right) + c).astype(np.int32)
    x, y = (operand.view(np.int64).reshape(-1) for operand in (a, b))
    got, meant = both(unit, target, x, y, c.reshape(-1))
    np.testing.assert_array_equal(got, expected.reshape(-1))
    np.testing.assert_array_equal(meant, expected.reshape(-1))


@pytest.mark.parametrize("target", [*TARGETS.values(), host_isa()], ids=str)
def test_four_bf16_are_two_pairs_in_turn_to_the_last_bit(target: Isa) -> None:
    rng = np.random.default_rng(5)
    near = rng.integers(0x3F00, 0x4180, (4, 1024, 4))
    wide = rng.integers(0, 0x7FFF, (4, 1024, 4))
    signs = rng.choice([0, 1 << 15], (4, 2048, 4))
    halves = (np.concatenate([near, wide], axis=1) | signs).astype(np.uint16)
    least = near_the_least_normal()
    a, b = (
        np.concatenate([halves[n].reshape(-1).view(np.int64), least[n].view(np.int64)])
        for n in (0, 1)
    )
    c = np.concatenate([rng.standard_normal(4096).astype(np.float32), least[2]])
    got, meant = both(BFMMLA, target, a, b, c)
    pairs = [x.view(np.int32).reshape(-1, 2, 2) for x in (a, b)]
    expected = c.reshape(-1, 2, 2)
    with np.errstate(all="ignore"):
        for half in (0, 1):
            rows, columns = (x[..., half] for x in pairs)
            left, right = np.repeat(rows, 2, axis=1), np.tile(columns, 2)
            expected = dot(BFDOT, left, right, expected.reshape(-1)).reshape(-1, 2, 2)
    numbers = ~np.isnan(expected.reshape(-1))
    assert numbers.sum() > 6000 and not numbers.all()
    for found in (got, meant):
        np.testing.assert_array_equal(np.isnan(found), ~numbers)
        left, right = (x.reshape(-1).view(np.int32)[numbers] for x in (found, expected))
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_is_one_instruction_where_there_is_one(unit: DotUnit) -> None:
    made = assembly(blocks_kernel(unit, 1), NAMED["aarch64-v8.6"])
    assert re.findall(r"\t(\w*mmla)\t", made) == [unit.name]
    assert "mmla" not in assembly(blocks_kernel(unit, 1), NAMED["aarch64-v8.2-dotprod"])


@pytest.mark.parametrize(("unit", "kind"), [(BLOCK_BYTES[0], I32), (BFMMLA, F32)], ids=str)
def test_a_word_for_all_rows_is_a_number_of_64_bits(unit: DotUnit, kind: object) -> None:
    b = KernelBuilder("k", "Dot")
    b.buffer("b", I64, 2, "in")
    b.buffer("c", unit.sum, 4, "inout")
    word = b.load("b", 0, I64, 2)
    b.store("c", 0, b.dot(unit, 0x0302_0100_4040_3F80, word, b.load("c", 0, unit.sum, 4)))
    words = np.array([0x4080_0001_3F80_4000, 0x0102_0304_0506_0708], np.int64)
    got = np.zeros(4, np.int32 if kind == I32 else np.float32)
    meant = got.copy()
    Native(b.kernel)({"b": words, "c": got})
    run_kernel(b.kernel, {"b": words, "c": meant})
    assert got.tolist() == meant.tolist() and got[:2].tolist() == got[2:].tolist()
    assert got[0] != got[1] != 0

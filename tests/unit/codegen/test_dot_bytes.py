"""`dot` of bytes on every kind of processor, against the interpreter's formula."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from kernelmill.codegen.compile import assembly
from kernelmill.core.dtype import I32, U8
from kernelmill.core.target import dot_units
from kernelmill.core.target.isa import NAMED, Isa, host_isa
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value
from kernelmill.kernel.numeric import dot
from tests.unit.codegen.native import TARGETS, run_map

WITH_VNNI = replace(NAMED["x86-64-v4"], features=("avx512vnni",))


def words(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    edges = np.array([[255, 128, 127, 0], [128, 128, 128, 128], [255] * 4, [127] * 4], np.uint8)
    random = rng.integers(0, 256, (60, 4), dtype=np.uint8)
    return np.concatenate([edges, random]).view(np.int32).reshape(-1)


@pytest.mark.parametrize(
    "unit",
    [unit for unit in dot_units.DOT_UNITS.values() if unit.group == 4 and unit.rows == 1],
    ids=lambda unit: unit.name,
)
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("target", [*TARGETS.values(), host_isa()], ids=str)
def test_it_is_exact(target: Isa, lanes: int, unit: dot_units.DotUnit) -> None:
    a, b, c = words(1), words(2)[::-1].copy(), words(3)
    got = run_map(
        lambda builder, *args: builder.dot(unit, *args), [a, b, c], [I32] * 3, I32, lanes,
        target,
    )  # fmt: skip
    left = a.view(np.uint8 if unit.a == U8 else np.int8)
    products = left.astype(np.int64) * b.view(np.int8)
    expected = products.reshape(-1, 4).sum(axis=1) + c
    np.testing.assert_array_equal(got, expected.astype(np.int32))


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("target", [*TARGETS.values(), host_isa()], ids=str)
def test_numbers_of_16_bits_are_exact(target: Isa, lanes: int) -> None:
    unit = dot_units.WORDS_OF_16
    a, b, c = words(1), words(2)[::-1].copy(), words(3)
    a[0] = b[0] = -0x7FFF8000  # both numbers -2^15: the sum of their products is 2^31
    got = run_map(
        lambda builder, *args: builder.dot(unit, *args), [a, b, c], [I32] * 3, I32, lanes,
        target,
    )  # fmt: skip
    products = a.view(np.int16).astype(np.int64) * b.view(np.int16)
    expected = products.reshape(-1, 2).sum(axis=1) + c
    np.testing.assert_array_equal(got, expected.astype(np.int32))
    np.testing.assert_array_equal(dot(unit, a, b, c), expected.astype(np.int32))


def instructions(target: Isa, lanes: int, unit: dot_units.DotUnit = dot_units.PAIRS_OF_16) -> str:
    builder = KernelBuilder("k", "Dot")
    builder.buffer("x", I32, lanes, "inout")
    value: Value = builder.load("x", 0, I32, lanes)
    builder.store("x", 0, builder.dot(unit, value, value, value))
    return assembly(builder.kernel, target)


def test_it_is_one_instruction_where_there_is_one() -> None:
    assert instructions(WITH_VNNI, 16).count("vpdpbusd") == 1
    assert instructions(NAMED["x86-64-v3-vnni"], 8).count("vpdpbusd") == 1
    plain = instructions(NAMED["x86-64-v3"], 8)
    assert "vpdpbusd" not in plain and plain.count("vpmaddwd") == 2


def test_signed_bytes_have_an_instruction_of_their_own() -> None:
    target = NAMED["x86-64-v3-vnni-int8"]
    assert instructions(target, 8, dot_units.VNNI_SIGNED).count("vpdpbssd") == 1
    assert instructions(target, 8, dot_units.VNNI).count("vpdpbusd") == 1
    assert "vpdp" not in instructions(NAMED["x86-64-v3"], 8, dot_units.VNNI_SIGNED)


@pytest.mark.parametrize(("unit", "name"), [(dot_units.SDOT, "sdot"), (dot_units.USDOT, "usdot")])
def test_aarch64_has_both_where_its_extensions_are(unit: dot_units.DotUnit, name: str) -> None:
    found = instructions(NAMED["aarch64-v8.6"], 16, unit)
    assert re.findall(r"\t(u?sdot)\t", found) == [name] * 4
    assert "dot" not in instructions(NAMED["aarch64-v8.2"], 16, unit).replace("Dot", "")
    assert f"\t{name}\t" not in instructions(NAMED["aarch64-v8.6"], 3, unit)

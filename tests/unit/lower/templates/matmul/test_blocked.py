"""Blocked schedules that are spelt out: all that can be written are followed, others refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from kernelmill.core.dtype import I32
from kernelmill.core.target.dot_units import VNNI
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.blocked_tiles import (
    FromRegisters,
    InDepthBlocks,
    ReadA,
    ReadB,
    Sums,
    ThroughScratch,
)
from tests.unit.lower.templates.matmul.compiled import Case, adjusted
from tests.unit.lower.templates.matmul.test_plan import AVX2

OF_A = {
    ReadA.PACKED: ["packed"],
    ReadA.IN_PLACE: ["k", "outer", "strided", "computed k"],
    ReadA.PREFETCH: ["k"],
    ReadA.COPIED: ["k", "outer", "strided", "computed outer"],
}
OF_B = {
    ReadB.PACKED: ["packed"],
    ReadB.PREFETCH: ["packed"],
    ReadB.IN_PLACE: ["outer", "strided", "computed outer"],
    ReadB.COPIED: ["outer", "k", "strided", "computed outer"],
}
"""How an operand lies that can be read so. The windows of a convolution are what is `FILLED`."""

SUMS: list[tuple[Sums, int]] = [
    (FromRegisters(), 1),
    (ThroughScratch(), 1),
    (ThroughScratch(), 3),
    (InDepthBlocks(2), 1),
    (InDepthBlocks(2), 3),
]
"""With the rows of a tile."""


@pytest.mark.parametrize(("sums", "rows"), SUMS)
@pytest.mark.parametrize("b", OF_B)
@pytest.mark.parametrize("a", OF_A)
def test_every_combination_is_followed(a: ReadA, b: ReadB, sums: Sums, rows: int) -> None:
    change = adjusted(a=a, b=b, sums=sums, rows=rows, row_tiles=2, column_tiles=2)
    for left, right in product(OF_A[a], OF_B[b]):
        case = Case(7, 37, (5, 3), a=left, b=right, adjust=change, target=AVX2)
        torch.testing.assert_close(case.interpreted(), case.expected(), rtol=0, atol=0)


@pytest.mark.parametrize("rows", [0, 2, 8])
def test_registers_hand_over_sums_of_one_row_only(rows: int) -> None:
    with pytest.raises(ValueError, match="rows cannot be stored from registers"):
        _blocked(FromRegisters(), rows)
    with pytest.raises(ValueError, match="rows cannot be stored from registers"):
        replace(_blocked(FromRegisters(), 1), rows=rows)


@pytest.mark.parametrize("size", [0, -1])
def test_a_block_along_k_has_elements(size: int) -> None:
    with pytest.raises(ValueError, match="along k"):
        InDepthBlocks(size)


def _blocked(sums: Sums, rows: int) -> Blocked:
    return Blocked(
        lanes=8,
        rows=rows,
        vectors=2,
        a=ReadA.IN_PLACE,
        b=ReadB.IN_PLACE,
        sums=sums,
        use_fma=True,
        work=1,
    )


@pytest.mark.parametrize(
    ("a", "change"),
    [
        ("k", ReadA.PACKED),
        ("outer", ReadA.PREFETCH),
        ("computed k", ReadA.PREFETCH),
        ("packed", ReadA.IN_PLACE),
        ("packed", ReadA.PREFETCH),
        ("packed", ReadA.COPIED),
    ],
)
def test_a_must_be_there_as_it_is_to_be_read(a: str, change: ReadA) -> None:
    with pytest.raises(ValueError, match=r"an operand that is not|does not fit the contraction"):
        _ = Case(7, 37, (5,), a=a, adjust=adjusted(a=change)).kernel


@pytest.mark.parametrize(
    ("b", "change"),
    [
        ("outer", ReadB.PACKED),
        ("outer", ReadB.PREFETCH),
        ("outer", ReadB.FILLED),
        ("packed", ReadB.IN_PLACE),
        ("packed", ReadB.COPIED),
        ("packed", ReadB.FILLED),
    ],
)
def test_b_must_be_there_as_it_is_to_be_read(b: str, change: ReadB) -> None:
    with pytest.raises(ValueError, match=r"an operand that is not|does not fit the contraction"):
        _ = Case(7, 37, (5,), b=b, adjust=adjusted(b=change)).kernel


def test_sums_that_scratch_shifts_are_not_stored_from_registers() -> None:
    case = Case(1, 37, (5,), b="outer", dtype=I32, accumulate=I32, result=I32)
    bytes = replace(case.spec, unit=VNNI)
    with pytest.raises(ValueError, match="does not fit the contraction"):
        _blocked(FromRegisters(), 1).emit_kernel(case.builder, bytes)

"""Compiled contractions against exact sums: layouts, sizes, types, targets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.core.dtype import BF16, F16, F32, F64, I8, I32, I64, U8, DType
from kernelmill.core.target.machine import profile
from kernelmill.lower.templates.matmul.blocked_tiles import InDepthBlocks, ReadB
from tests.unit.lower.templates.matmul.compiled import FLAVOURS, Case, adjusted

SIZES = [
    # m, n, k
    (1, 1, 1),
    (1, 70, 33),
    (3, 16, 16),
    (5, 17, 9),
    (8, 48, 20),
    (13, 100, 40),
    (67, 130, 50),
    (64, 64, 64),
]


@pytest.mark.parametrize("b", FLAVOURS)
@pytest.mark.parametrize("a", FLAVOURS)
def test_every_layout_and_edge(a: str, b: str) -> None:
    for m, n, k in SIZES:
        Case(m, n, (k,), a=a, b=b).check()


@pytest.mark.parametrize("b", FLAVOURS)
@pytest.mark.parametrize("a", FLAVOURS)
def test_every_access_is_inside(a: str, b: str) -> None:
    for m, n, k in [(1, 33, 17), (9, 50, 5)]:
        case = Case(m, n, (k,), a=a, b=b)
        torch.testing.assert_close(case.interpreted(), case.expected(), rtol=0, atol=0)


@pytest.mark.parametrize("b", FLAVOURS)
@pytest.mark.parametrize("a", FLAVOURS)
def test_batches_and_several_reduction_axes(a: str, b: str) -> None:
    Case(7, 37, (5, 3, 2), batch=(2, 3), a=a, b=b).check()
    Case(1, 37, (3, 20), batch=(3,), a=a, b=b).check()
    Case(20, 70, (2, 40), batch=(2,), a=a, b=b).check()


@pytest.mark.parametrize("b", [flavour for flavour in FLAVOURS if flavour != "packed"])
@pytest.mark.parametrize("a", [flavour for flavour in FLAVOURS if flavour != "packed"])
def test_every_size_known_only_at_the_call(a: str, b: str) -> None:
    for m, n, k in [(1, 70, 33), (2, 5, 3), (17, 64, 40), (0, 3, 4), (3, 0, 4), (3, 4, 0)]:
        Case(m, n, (k,), a=a, b=b, dynamic="mnk").check()


@pytest.mark.parametrize("k", [(385,), (512,), (611,), (1000,), (3, 200), (90, 3, 3)])
@pytest.mark.parametrize("m", [1, 9])
def test_long_sums_in_parts(m: int, k: tuple[int, ...]) -> None:
    Case(m, 70, k).check()
    Case(m, 70, k, a="outer", b="k", dynamic="k").check()


@pytest.mark.parametrize("m", [*range(18), 40, 41])
def test_one_kernel_serves_every_number_of_rows(m: int) -> None:
    Case(m, 100, (40,), dynamic="m").check()
    Case(m, 100, (40,), a="packed", b="outer", dynamic="m").check()


@pytest.mark.parametrize(("b", "k", "classes"), [("outer", 2000, 2), ("k", 40, 5)])
def test_classes_of_the_number_of_rows(b: str, k: int, classes: int) -> None:
    for m in (*range(11), 16, 41):
        case = Case(m, 100, (k,), b=b, dynamic="m", by_size=True)
        assert len(case.classes) == classes == len(case.kernel.classes)
        case.check()
    for m in (0, 1, 4, 5, 8, 9):
        case = Case(m, 40, (20,), batch=(2,), b=b, dynamic="mnk", by_size=True)
        assert len(case.classes) == classes
        case.check()
        torch.testing.assert_close(case.interpreted(), case.expected(), rtol=0, atol=0)


def test_a_packed_operand_serves_all_rows_with_one_body() -> None:
    assert len(Case(9, 100, (40,), dynamic="m", by_size=True).classes) == 1
    assert len(Case(9, 100, (40,), b="outer", by_size=True).classes) == 1


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 4), (4, 0, 4), (4, 5, 0), (1, 5, 0), (0, 0, 0)])
def test_nothing_to_compute_or_to_sum(m: int, n: int, k: int) -> None:
    for b in ("packed", "outer", "k"):
        Case(m, n, (k,), b=b).check()


TYPES = [
    (F64, F64, F64),
    (I32, I32, I32),
    (I64, I64, I64),
    (I8, I32, I32),
    (U8, I32, I32),
    (F16, F32, F32),
    (BF16, F32, F32),
    (BF16, F32, BF16),
]


@pytest.mark.parametrize(("dtype", "accumulate", "result"), TYPES)
@pytest.mark.parametrize("b", ["packed", "outer", "k", "computed outer"])
def test_types(dtype: DType, accumulate: DType, result: DType, b: str) -> None:
    for a in ("k", "packed", "computed outer"):
        for m, n, k in [(1, 70, 8), (19, 50, 7)]:
            Case(m, n, (k,), a=a, b=b, dtype=dtype, accumulate=accumulate, result=result).check()


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("b", FLAVOURS)
def test_narrower_vectors(level: int, b: str) -> None:
    for a in ("k", "packed", "computed k"):
        for m, n, k in [(1, 30, 33), (19, 50, 20)]:
            Case(m, n, (k,), a=a, b=b, target=profile(f"x86-64-v{level}")).check()


@pytest.mark.parametrize("b", FLAVOURS)
@pytest.mark.parametrize("a", ["k", "computed k", "computed outer"])
@pytest.mark.parametrize(("k", "block"), [((5, 3, 2), 2), ((100,), 33)])
def test_sums_taken_in_blocks_of_k(a: str, b: str, k: tuple[int, ...], block: int) -> None:
    case = Case(20, 70, k, a=a, b=b, adjust=adjusted(sums=InDepthBlocks(block), row_tiles=2))
    case.check()


@pytest.mark.parametrize("row_tiles", [1, 2, 5])
@pytest.mark.parametrize("column_tiles", [1, 3])
@pytest.mark.parametrize(("a", "b"), [("computed k", "outer"), ("computed outer", "k")])
def test_any_split_into_tasks(row_tiles: int, column_tiles: int, a: str, b: str) -> None:
    split = adjusted(row_tiles=row_tiles, column_tiles=column_tiles, b=ReadB.COPIED)
    Case(43, 200, (19,), batch=(2,), a=a, b=b, adjust=split).check()


flavours = st.sampled_from(FLAVOURS)
sizes = st.integers(1, 60)


@settings(max_examples=40, deadline=None)
@given(m=sizes, n=sizes, k=sizes, batch=st.sampled_from([(), (2,)]), a=flavours, b=flavours)
def test_random_sizes(m: int, n: int, k: int, batch: tuple[int, ...], a: str, b: str) -> None:
    Case(m, n, (k,), batch=batch, a=a, b=b).check()

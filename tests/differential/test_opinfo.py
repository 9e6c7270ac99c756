"""A part of the operator database on every run; `make sweep` runs all of it (docs/coverage.md)."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from tests.differential.opinfo import DTYPES, check, operators, samples, supports
from tests.e2e.conftest import BACKEND

PARTS = 40
"""Tests by number, not by operator: the database takes four seconds to import, and is not imported
where tests are only collected."""

SAMPLES = 2


def wrong_samples(
    names: list[str], dtype: torch.dtype, count: int, dynamic: bool = False
) -> list[str]:
    """What is wrong, by operator and sample; none is an empty list."""
    wrong: list[str] = []
    for op in (operators()[name] for name in names):
        if not supports(op, dtype):
            continue
        for number, sample in enumerate(islice(samples(op, dtype), count)):
            verdict = check(op, sample, BACKEND, dynamic)
            if verdict.status == "failed":
                wrong.append(f"{op.full_name}, {dtype}, sample {number}: {verdict.detail}")
    return wrong


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("part", range(PARTS))
def test_float32(part: int) -> None:
    names = list(operators())[part::PARTS]
    assert len(names) > 10
    assert wrong_samples(names, torch.float32, SAMPLES) == []


@pytest.mark.parametrize("part", range(PARTS // 4))
def test_other_dtypes(part: int) -> None:
    for offset, dtype in enumerate(DTYPES[1:]):
        names = list(operators())[offset::10][part :: PARTS // 4]
        assert wrong_samples(names, dtype, SAMPLES) == []


@pytest.mark.parametrize("part", range(PARTS // 4))
def test_dynamic_shapes(part: int) -> None:
    names = list(operators())[::4][part :: PARTS // 4]
    assert wrong_samples(names, torch.float32, 1, dynamic=True) == []

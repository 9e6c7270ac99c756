"""A part of the operator database on every run; `make sweep` runs all of it (docs/coverage.md)."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from tests.differential.opinfo import DTYPES, check, operators, samples, supports
from tests.e2e.conftest import BACKEND

NAMES = list(operators())
SAMPLES = 2


def wrong_samples(name: str, dtype: torch.dtype, count: int, dynamic: bool = False) -> list[str]:
    """What is wrong, by sample; none is an empty list."""
    op = operators()[name]
    wrong: list[str] = []
    for number, sample in enumerate(islice(samples(op, dtype), count)):
        verdict = check(op, sample, BACKEND, dynamic)
        if verdict.status == "failed":
            wrong.append(f"sample {number}: {verdict.detail}")
    return wrong


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", [n for n in NAMES if supports(operators()[n], torch.float32)])
def test_float32(name: str) -> None:
    assert wrong_samples(name, torch.float32, SAMPLES) == []


OTHERS = [
    (name, dtype)
    for offset, dtype in enumerate(DTYPES[1:])
    for name in NAMES[offset::10]
    if supports(operators()[name], dtype)
]


@pytest.mark.parametrize(("name", "dtype"), OTHERS, ids=[f"{n}-{d}" for n, d in OTHERS])
def test_other_dtypes(name: str, dtype: torch.dtype) -> None:
    assert wrong_samples(name, dtype, SAMPLES) == []


@pytest.mark.parametrize("name", [n for n in NAMES[::4] if supports(operators()[n], torch.float32)])
def test_dynamic_shapes(name: str) -> None:
    assert wrong_samples(name, torch.float32, 1, dynamic=True) == []

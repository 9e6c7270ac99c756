"""Promotion against torch's own, over all pairs of dtypes, ranks and numbers."""

from __future__ import annotations

import itertools

import pytest
import torch

from kernelmill.core.dtype import COMPUTABLE, from_torch, to_torch
from kernelmill.frontend.emitter import promote
from kernelmill.graph.ir import TensorType, Value

NUMBERS: tuple[bool | int | float, ...] = (True, 3, 2.5)


def value(dtype: torch.dtype, rank: int) -> Value:
    ours = from_torch(dtype)
    assert ours is not None
    return Value("x", TensorType(ours, (2,) * rank))


@pytest.mark.parametrize("ranks", list(itertools.product((0, 1), repeat=2)))
def test_pairs_of_tensors(ranks: tuple[int, int]) -> None:
    for a, b in itertools.product(map(to_torch, COMPUTABLE), repeat=2):
        tensors = [torch.zeros((2,) * rank, dtype=d) for d, rank in zip((a, b), ranks, strict=True)]
        values = [value(d, rank) for d, rank in zip((a, b), ranks, strict=True)]
        assert to_torch(promote(values)) == torch.result_type(*tensors), (a, b)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("number", NUMBERS)
def test_tensor_and_number(rank: int, number: bool | int | float) -> None:
    for dtype in map(to_torch, COMPUTABLE):
        tensor = torch.zeros((2,) * rank, dtype=dtype)
        found = to_torch(promote([value(dtype, rank), number]))
        assert found == torch.result_type(tensor, number), dtype

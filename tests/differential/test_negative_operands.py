"""Negative numbers where eager takes them in a way of its own: as divisors, and as positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.differential.opinfo import Flat, check_flat
from tests.e2e.conftest import BACKEND


def assert_lowered(function: Any, *args: Any) -> None:
    found = check_flat(Flat(function, (args, {})), BACKEND)
    assert found.status == "passed", found


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_the_least_number_over_minus_one(dtype: torch.dtype) -> None:
    """It wraps. Of the wider types eager is stopped by the processor."""
    least = torch.iinfo(dtype).min
    x = torch.tensor([least, least + 1, -1, 0, 1, 3, 5, 7] * 8).to(dtype)

    def quotients(x: Tensor) -> list[Tensor]:
        ones = torch.full((), -1, dtype=x.dtype)
        return [
            x // -1, torch.div(x, -1, rounding_mode="trunc"), x % -1, torch.fmod(x, -1),
            x // ones, (x + 0).reshape(8, 8).t() // -1,
        ]  # fmt: skip

    assert_lowered(quotients, x)


def test_index_fill_counts_from_the_end() -> None:
    places = torch.tensor([0, -1, 2])
    x = torch.randn(5, 6, 7)
    assert_lowered(lambda x, i: x.index_fill(1, i, 3.0), x, places)
    assert_lowered(lambda x, i, v: x.index_fill(0, i, v), x, places, torch.tensor(2.0))
    assert_lowered(lambda x, i: x.clone().index_fill_(2, i, 0.0), x, places)


@pytest.mark.parametrize("place", [-6, 5])
def test_index_fill_out_of_range(place: int) -> None:
    compiled = torch.compile(lambda x, i: x.index_fill(0, i, 3.0), backend=BACKEND)
    with pytest.raises(IndexError):
        compiled(torch.randn(5, 2), torch.tensor([place]))

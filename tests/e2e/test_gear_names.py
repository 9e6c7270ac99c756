"""Gears of arguments that are called as something else is, or by no word."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from kernelmill import CompilerConfig, GearError, get_backend
from kernelmill.inference import set_dim_gears

pytestmark = pytest.mark.usefixtures("strict")
SIZES = [2, 4, 8]


class Named(nn.Module):
    """The argument is called as a buffer is."""

    def __init__(self, buffer_first: bool) -> None:
        super().__init__()
        self.register_buffer("x", torch.full((6,), 0.5))
        self._buffer_first = buffer_first

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.x * 2 + x if self._buffer_first else x * 2 + self.x)


class Batch(nn.Module):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return torch.relu(batch["input-ids"] + batch[""])


def compiled(model: nn.Module, miss: str) -> Any:
    config = CompilerConfig()
    config.inference_config.gear_miss = miss
    return torch.compile(model, backend=get_backend(compiler_config=config), fullgraph=True)


def geared(rows: int) -> Tensor:
    x = torch.randn(rows, 6)
    set_dim_gears(x, {0: SIZES})
    return x


@pytest.mark.parametrize("buffer_first", [False, True])
@pytest.mark.parametrize("miss", ["error", "pad"])
def test_a_buffer_of_the_same_name(buffer_first: bool, miss: str) -> None:
    reference = Named(buffer_first)
    model = compiled(reference, miss)
    with torch.no_grad():
        for x in (geared(4), *(torch.randn(size, 6) for size in (2, 8))):
            assert_close(model(x), reference(x))
        if miss == "pad":
            x = torch.randn(5, 6)
            assert_close(model(x), reference(x))
        with pytest.raises(GearError, match=r"L\['x'\].*\[9, 6\]"):
            model(torch.randn(9, 6))


@pytest.mark.parametrize("miss", ["error", "pad"])
def test_keys_that_are_no_words(miss: str) -> None:
    reference = Batch()
    model = compiled(reference, miss)
    with torch.no_grad():
        first = {"input-ids": geared(4), "": geared(4)}
        assert_close(model(first), reference(first))
        for rows in (2, 8):
            batch = {"input-ids": torch.randn(rows, 6), "": torch.randn(rows, 6)}
            assert_close(model(batch), reference(batch))
        batch = {"input-ids": torch.randn(9, 6), "": torch.randn(9, 6)}
        with pytest.raises(GearError, match="input-ids"):
            model(batch)

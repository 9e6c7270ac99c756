"""Cached methods of one object that have the same name, and so one folder."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT
X = torch.arange(3.0)


class Plain(nn.Module):
    def step(self, x: Tensor) -> Tensor:
        return x + 1


class Twice(Plain):
    def step(self, x: Tensor) -> Tensor:
        return x * 2

    def of_base(self) -> Callable[[Tensor], Tensor]:
        return super().step


def bound(function: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    return types.MethodType(function, Twice())


def both() -> dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]:
    twice = Twice()
    return {
        "a method and the one that it overrides": (twice.step, twice.of_base()),
        "lambdas": (bound(lambda self, x: x - 1), bound(lambda self, x: x - 2)),
        "a function and the method of that name": (twice.step, bound(step)),
    }


def step(self: nn.Module, x: Tensor) -> Tensor:
    return x * 3


@torch.no_grad()
@pytest.mark.parametrize("what", both())
def test_each_has_its_own_program(tmp_path: Path, what: str) -> None:
    for traced in ([1, 1], [0, 0]):  # in this process' first calls, and as they are loaded
        cached = [cache_compile(method, cache_dir=str(tmp_path)) for method in both()[what]]
        for method, call in zip(both()[what], cached, strict=True):
            assert_close(call(X), method(X))
        assert [call.statistics["traced"] for call in cached] == traced

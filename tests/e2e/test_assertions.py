"""Assertions on what tensors hold: they cost no step where nothing but the error tells when they
were looked at, and raise what eager does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.inference import cache_compile
from tests.compiled import reported


def _alone(x: Tensor) -> Any:
    torch._assert_async((x > 0).all(), "not positive")
    return x.log()


def _several(x: Tensor) -> Any:
    torch._assert_async((x > 0).all(), "not positive")
    y = x.log()
    torch._assert_async((y < 9).all(), "too large")
    return y, y.view(-1)


def _after_a_write(x: Tensor) -> Any:
    torch._assert_async((x > 0).all(), "not positive")
    return x.mul_(2) + 1


def _of_an_index(x: Tensor) -> Any:
    at = x[0].long()
    torch._assert_async((at >= 0).all(), "not positive")
    return x[at]


def _before_random_numbers(x: Tensor) -> Any:
    torch._assert_async((x > 0).all(), "not positive")
    return torch.rand(3) + x.sum()


FREE = (_alone, _several)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [*FREE, _after_a_write, _of_an_index, _before_random_numbers])
def test_the_error_is_eagers_and_what_is_left_behind(function: Any, dynamic: bool) -> None:
    torch._dynamo.reset()
    backend, reports = reported()
    call = torch.compile(function, backend=backend, dynamic=dynamic)
    for rows, low in ((4, 0), (4, -9), (5, 0), (5, -9), (4, 0)):
        x = torch.full((rows, 3), 1.0)
        x[0, 0] += low
        assert outcome(call, x) == outcome(function, x)
    asserted = [name for report in reports for name, _, _ in report.fallbacks if "assert" in name]
    assert bool(asserted) == (function not in FREE)


def test_a_cached_method_asserts_in_each_call(tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return _several(x)

    for _ in range(2):
        torch._dynamo.reset()
        call = cache_compile(Module().forward, cache_dir=str(tmp_path))
        for value in (1.0, 2.0, -1.0, 3.0, 1e30, 1.0):
            x = torch.full((4, 3), value)
            with torch.no_grad():
                assert outcome(call, x) == outcome(_several, x)
        assert call.statistics["uncached"] == 0


def outcome(function: Callable[[Tensor], Any], x: Tensor) -> object:
    """The results or the error's words, what is in the argument, and the next random number."""
    x = x.clone()
    torch.manual_seed(0)
    try:
        made = function(x)
        found: object = [t.tolist() for t in (made if isinstance(made, tuple) else (made,))]
    except RuntimeError as error:
        found = type(error), str(error)
    return found, x.tolist(), torch.rand(()).item()

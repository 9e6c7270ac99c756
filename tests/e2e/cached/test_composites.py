"""Cached methods that call operators which torch takes apart by a user's own code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from kernelmill.backend import runnable
from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT
NAMESPACE = "kernelmill_composites"


@pytest.fixture
def times() -> Iterator[dict[str, float]]:
    """What the operator of that name multiplies with."""
    number = {"by": 2.0}
    library = torch.library.Library(NAMESPACE, "DEF")
    library.define("times(Tensor x) -> Tensor")
    library.impl("times", lambda x: x * number["by"], "CompositeImplicitAutograd")
    yield number
    library._destroy()


class Caller(nn.Module):
    def run(self, x: Tensor) -> Tensor:
        operators: Any = torch.ops.kernelmill_composites
        return operators.times(x) + 1


@torch.no_grad()
def test_what_nothing_compares_is_not_kept(
    times: dict[str, float], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.arange(3.0)
    for number in (2.0, 3.0):
        times["by"] = number
        cached = cache_compile(Caller().run, cache_dir=tmp_path)
        assert_close(cached(x), x * number + 1)
        torch.compiler.reset()
    assert "kernelmill_composites::times, which torch takes apart by code" in caplog.text


@torch.no_grad()
def test_the_version_of_its_package_stands_for_the_code(
    times: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, NAMESPACE, ModuleType(NAMESPACE))
    monkeypatch.setattr(runnable, "packages_of", lambda modules: {"torch": torch.__version__})
    cached = cache_compile(Caller().run, cache_dir=tmp_path)
    cached(torch.ones(3))
    assert cached.statistics == {"loaded": 0, "traced": 1, "uncached": 0}

"""Cached methods with decompositions, which AOTAutograd runs where Dynamo does not see it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT
MODULE = "own_decompositions"
SOURCE = """
import functools
import own_decompositions as this

SCALE = 2
SCALES = {"both": [2, 3]}
SCALES["itself"] = SCALES["both"]


def helper(x):
    return x + 2


class Shifted:
    def __call__(self, x):
        return x - 2


shifted = Shifted()
by_helper = lambda x: this.helper(x)
by_number = lambda x: x * SCALE
by_table = lambda x: x * SCALES["both"][0]
by_object = lambda x: shifted(x)
by_partial = functools.partial(by_helper)


def unrelated(x):
    return x * 5
"""


class Sine(nn.Module):
    def run(self, x: Tensor) -> Tensor:
        return torch.sin(x)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits are too soon for it
    yield importlib.import_module(MODULE)
    del sys.modules[MODULE]


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "before", "after", "traced"),
    [
        ("by_helper", "x + 2", "x + 3", 1),
        ("by_partial", "x + 2", "x + 3", 1),
        ("by_number", "SCALE = 2", "SCALE = 3", 1),
        ("by_table", "[2, 3]", "[4, 3]", 1),
        ("by_object", "x - 2", "x - 3", 1),
        ("by_helper", "x * 5", "x * 6", 0),
    ],
)
def test_what_a_decomposition_goes_through_is_compared(
    own: Any, tmp_path: Path, name: str, before: str, after: str, traced: int
) -> None:
    x = torch.arange(3.0)

    def check() -> int:
        function = getattr(importlib.reload(own), name)
        table = {torch.ops.aten.sin.default: function}
        cached = cache_compile(Sine().run, cache_dir=tmp_path, custom_decompositions=table)
        assert_close(cached(x), function(x))
        return cached.statistics["traced"]

    assert (check(), check()) == (1, 0)
    (tmp_path / f"{MODULE}.py").write_text(SOURCE.replace(before, after))
    assert check() == traced

"""A cached method whose code asks the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelmill.inference import cache_compile, readable_cache
from tests.kept_methods import KEPT

pytestmark = KEPT
NAME = "KERNELMILL_TEST_OF_THE_ENVIRONMENT"


class Asking(nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.run = cache_compile(self.step, cache_dir=folder)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x * (2 if os.environ.get(NAME) is None else 3)


@torch.no_grad()
def test_a_variable_that_is_not_set_is_looked_at_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.setenv("ANOTHER", "a secret")
    x = torch.ones(2)
    first = Asking(tmp_path)
    for _ in range(3):
        assert first.run(x).tolist() == [2.0, 2.0]
    assert first.run.statistics["traced"] == 1
    assert "a secret" not in readable_cache(tmp_path, print_output=False)
    monkeypatch.setenv("ANOTHER", "another secret")
    monkeypatch.setenv("MORE", "1")
    later = Asking(tmp_path)
    assert later.run(x).tolist() == [2.0, 2.0] and later.run.statistics["loaded"] == 1
    monkeypatch.setenv(NAME, "1")
    assert later.run(x).tolist() == [3.0, 3.0]

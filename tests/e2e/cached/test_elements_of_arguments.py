"""What `in` finds in a list or tuple that is passed is part of what a kept program is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import kernelmill
from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

VALUES: tuple[Any, ...] = (
    (), [2], (2,), (3,), [3], (2, 5), [5, 2], [], ["2"], (2.0,), (True, 2), (None,), {2: 1}, {3: 2},
)  # fmt: skip


class Model(torch.nn.Module):
    def prompt(self, x: Tensor, wanted: Any) -> Tensor:
        return x * 3 if 2 in wanted else x + 1


def assert_right(call: Any, model: Model) -> None:
    x = torch.ones(3)
    for value in (*VALUES, *reversed(VALUES)):
        assert torch.equal(call(x, value), model.prompt(x, value)), value


@KEPT
@pytest.mark.parametrize("dynamic", [False, True])
def test_cached_methods(dynamic: bool, tmp_path: Path) -> None:
    for _ in range(2):  # the second is loaded
        model = Model()
        call = cache_compile(model.prompt, cache_dir=tmp_path, dynamic=dynamic, max_entries=99)
        with torch.no_grad():
            assert_right(call, model)


@KEPT
def test_the_front_door(tmp_path: Path) -> None:
    model = Model()
    call = kernelmill.compile(model.prompt, cache_dir=tmp_path)
    with torch.no_grad():
        assert_right(call, model)

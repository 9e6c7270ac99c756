"""Integers that were equal to sizes, or to each other, in the call that was traced, and integers
of which the trace asks something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT


class Limits:
    def __init__(self, first: int, second: int) -> None:
        self.first, self.second = first, second


def compared_with_size(x: Any, limits: Limits) -> Any:
    return x * 2.0 if limits.first >= x.shape[0] else x * 3.0


def compared_with_each_other(x: Any, limits: Limits) -> Any:
    return x + 1.0 if limits.first >= limits.second else x - 1.0


def made_equal_by_use(x: Any, limits: Limits) -> Any:
    last = x[-limits.first :]
    return torch.cat([last, x]) * 2.0 if last.shape[0] == x.shape[0] else last


FUNCTIONS = (compared_with_size, compared_with_each_other, made_equal_by_use)


class Model(nn.Module):
    def __init__(self, folder: Any, function: Callable[[Any, Limits], Any]) -> None:
        super().__init__()
        self.function = function
        self.cached = cache_compile(self.step, dynamic=True, cache_dir=str(folder))

    def step(self, x: Any, limits: Any) -> Any:
        return self.function(x, limits)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_other_integers_are_not_taken_for_equal(
    tmp_path: Any, function: Callable[[Any, Limits], Any]
) -> None:
    calls = [(4, 4, 4), (4, 4, 4), (4, 3, 5), (5, 5, 5), (4, 5, 3), (4, 3, 4), (6, 2, 2)]
    for model in (Model(tmp_path, function), Model(tmp_path, function)):
        for rows, first, second in calls:
            x, limits = torch.randn(rows, 3), Limits(first, second)
            with torch.no_grad():
                torch.testing.assert_close(model.cached(x, limits), function(x, limits))
    assert model.cached.statistics["loaded"] > 0


class Padded(nn.Module):
    """Divides by a size that is positive in the trace, and by its range may be negative."""

    def __init__(self, folder: Any) -> None:
        super().__init__()
        self.cached = cache_compile(self.step, dynamic=True, cache_dir=str(folder))

    def step(self, x: Any, more: int) -> Any:
        return torch.nn.functional.pad(x, (0, more))[:, ::2].chunk(2, 1)


def test_one_trace_serves_all_values_of_an_integer(tmp_path: Any) -> None:
    for traced in (1, 0):
        model = Padded(tmp_path)
        for columns, more in ((20, 4), (20, 7), (20, 10), (9, 13), (12, 16), (20, 19), (12, -3)):
            x = torch.randn(10, columns)
            with torch.no_grad():
                torch.testing.assert_close(model.cached(x, more), model.step(x, more))
        assert model.cached.statistics["traced"] == traced

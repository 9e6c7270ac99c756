"""Cached methods that take numbers out of tensors, and return or compute with them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT

Function = Callable[["Model", Tensor], Any]


def alone(model: Model, x: Tensor) -> Any:
    return model.layer(x).sum().item()


def among_others(model: Model, x: Tensor) -> Any:
    return {"a": [x.sum().item(), (x.max().item(), model.layer(x))], "b": x.sum()}


def twice(model: Model, x: Tensor) -> Any:
    number = x.sum().item()
    return number, number, x + number


def as_a_tensor_too(model: Model, x: Tensor) -> Any:
    number = x.sum().item()
    return torch.scalar_tensor(number, dtype=torch.float64), number


def as_a_tensor_alone(model: Model, x: Tensor) -> Any:
    return torch.scalar_tensor(x.sum().item(), dtype=torch.float64)


def computed(model: Model, x: Tensor) -> Any:
    return -x.sum().item() * 2 + x.max().item() ** 2


def a_number_of_integers(model: Model, x: Tensor) -> Any:
    whole = (x * 10).long().sum()
    return whole.item(), whole.item() * 0.5


def not_finite(model: Model, x: Tensor) -> Any:
    return (x.abs() / 0).sum().item(), (x / 0 * 0).sum().item()


def of_sizes(model: Model, x: Tensor) -> Any:
    return model.layer(x), x.shape[0] * 0.5, x.size(), x.shape[1:]


def with_constants(model: Model, x: Tensor) -> Any:
    return [0.5, x.sum().item(), model.scale]


def absolute(model: Model, x: Tensor) -> Any:
    return abs(x.sum().item())


FUNCTIONS = (
    alone, among_others, twice, as_a_tensor_too, as_a_tensor_alone, computed, a_number_of_integers,
    not_finite, of_sizes, with_constants, absolute,
)  # fmt: skip


class Model(nn.Module):
    def __init__(self, function: Function, folder: Path, dynamic: bool = True) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer, self.scale, self._function = nn.Linear(4, 4), 0.25, function
        self.run = cache_compile(self.step, cache_dir=folder, dynamic=dynamic)

    def step(self, x: Tensor) -> Any:
        return self._function(self, x)


def check(got: Any, expected: Any) -> None:
    """Equal, of just the same classes."""
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        got, expected = list(got.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            check(one, other)
    elif isinstance(expected, Tensor):
        torch.testing.assert_close(got, expected)
    elif isinstance(expected, float):
        equal = math.isclose(got, expected, rel_tol=1e-5, abs_tol=1e-5)
        assert equal or (math.isnan(got) and math.isnan(expected))
    else:
        assert got == expected


@torch.no_grad()
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_numbers_are_those_of_the_call(tmp_path: Path, function: Function) -> None:
    for traced in (1, 0):
        model = Model(function, tmp_path)
        for rows in (2, 2, 3, 5):
            x = torch.randn(rows, 4)
            check(model.run(x), model.step(x))
        counts = model.run.statistics
        if function is not of_sizes:  # a number that is a size is part of the trace
            assert counts == {"loaded": 1 - traced, "traced": traced, "uncached": 0}


class Memory:
    """Keeps what it is given."""

    def __init__(self, last: Any) -> None:
        self.last = last


def put_number(x: Tensor, memory: Memory) -> Any:
    memory.last = x.sum().item()
    return x * 2


def put_tensor(x: Tensor, memory: Memory) -> Any:
    memory.last = torch.scalar_tensor(x.sum().item(), dtype=torch.float64)
    return memory.last, memory.last.item()


def put_list(x: Tensor, memory: Memory) -> Any:
    memory.last = [x.sum().item(), 1.0]
    return memory.last


def put_tuple(x: Tensor, memory: Memory) -> Any:
    memory.last = (x.sum().item(), (x > 0).sum().item())
    return x + 1


class Remembering(nn.Module):
    def __init__(self, function: Callable[[Tensor, Memory], Any], folder: Path) -> None:
        super().__init__()
        self._function = function
        self.run = cache_compile(self.step, cache_dir=folder)

    def step(self, x: Tensor, memory: Memory) -> Any:
        return self._function(x, memory)


@torch.no_grad()
@pytest.mark.parametrize("before", [None, 0.5], ids=str)
@pytest.mark.parametrize(
    "function", [put_number, put_tensor, put_list, put_tuple], ids=lambda f: f.__name__
)
def test_a_number_that_is_set_is_that_of_the_call(
    tmp_path: Path, function: Callable[[Tensor, Memory], Any], before: Any
) -> None:
    for _ in range(2):
        model = Remembering(function, tmp_path)
        for _ in range(3):
            x, memory, mirror = torch.randn(3), Memory(before), Memory(before)
            got, expected = model.run(x, memory), model.step(x, mirror)
            check(got, expected)
            check(memory.last, mirror.last)
            if function is put_list:
                assert got is memory.last


@dataclass
class Partly:
    """A result one of whose fields is not set."""

    number: float
    later: float = field(init=False)


class Holder:
    def __init__(self, number: float) -> None:
        self.number = number


def beside_a_class(model: Model, x: Tensor) -> Any:
    return x + 1, Partly, x.sum().item()


def with_an_unset_field(model: Model, x: Tensor) -> Any:
    return Partly(x.sum().item())


def in_an_object(model: Model, x: Tensor) -> Any:
    return Holder(x.sum().item())


def in_a_deque(model: Model, x: Tensor) -> Any:
    return deque([x.sum().item()])


@torch.no_grad()
@pytest.mark.parametrize(
    "function",
    [beside_a_class, with_an_unset_field, in_an_object, in_a_deque],
    ids=lambda f: f.__name__,
)
def test_numbers_in_results_that_may_not_be_kept(tmp_path: Path, function: Function) -> None:
    model = Model(function, tmp_path)
    for _ in range(3):
        x = torch.randn(2, 4)
        got, expected = model.run(x), model.step(x)
        if isinstance(expected, Holder | Partly):
            assert type(got) is type(expected)
            check(got.number, expected.number)
        elif isinstance(expected, deque):
            check(list(got), list(expected))
        else:
            check((got[0], got[2]), (expected[0], expected[2]))
            assert got[1] is Partly


@torch.no_grad()
@pytest.mark.needs_internal("dynamo.limit_error")
def test_what_is_not_kept_runs_in_eager_from_torchs_limit_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Model(in_a_deque, tmp_path, dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=3):
        for rows in range(2, 9):
            x = torch.randn(rows, 4)
            check(list(model.run(x)), list(model.step(x)))
    assert model.run.statistics["uncached"] == 7
    told = [r for r in caplog.records if "runs in eager for what" in r.getMessage()]
    assert len(told) == 1

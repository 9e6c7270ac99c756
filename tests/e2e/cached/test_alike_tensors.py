"""Cached methods called with tensors that differ in more than dtype, sizes and strides."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from kernelmill.core.errors import InputError
from kernelmill.inference import cache_compile
from tests.e2e.cached.of_function import OfFunction, check_calls
from tests.kept_methods import KEPT

pytestmark = KEPT
X = torch.arange(6.0).reshape(2, 3) + 1


class Held:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def by_gradient(x: Tensor) -> Tensor:
    return x * 2 if x.requires_grad else x * 3


def by_class(x: Tensor) -> Tensor:
    return x * 2 if isinstance(x, nn.Parameter) else x * 3


def by_identity(a: Tensor, b: Tensor) -> Tensor:
    return a * 2 if a is b else a * 3 + b


class Chosen:
    """An attribute that is no tensor's name."""

    yes = True


def by_identity_of_either(a: Tensor, b: Tensor) -> Tensor:
    same = (a if Chosen.yes else Chosen.yes) is b
    return a * 2 if same else a * 3 + b


def by_identity_with_either(a: Tensor, b: Tensor) -> Tensor:
    same = a is (b if Chosen.yes else None)
    return a * 2 if same else a * 3 + b


def by_function(a: Tensor, b: Tensor) -> Tensor:
    return a * 3 + b if operator.is_not(a, b) else a * 2


def in_a_set(a: Tensor, b: Tensor) -> Tensor:
    return a * 2 if b in {a} else a * 3 + b


def as_a_key(a: Tensor, b: Tensor) -> Tensor:
    return a * {a: 2.0}.get(b, 3.0)


def of_lists(a: list[Tensor], b: list[Tensor]) -> Tensor:
    return a[0] * 2 if a is b else a[0] * 3 + b[0]


def of_objects(a: Held, b: Held) -> Tensor:
    return a.tensor * 2 if a is b else a.tensor * 3 + b.tensor


def twice(value: Any) -> tuple[Any, Any]:
    return value, value


CALLS: dict[str, tuple[Callable[..., Tensor], list[tuple[Any, ...]]]] = {
    "requires grad": (by_gradient, [(X,), (X.clone().requires_grad_(),)]),
    "parameters": (by_class, [(X,), (nn.Parameter(X),), (nn.Parameter(X, False),)]),
    "one tensor": (by_identity, [(X, X.clone()), twice(X)]),
    "one tensor, either": (by_identity_of_either, [(X, X.clone()), twice(X)]),
    "one tensor, or none": (by_identity_with_either, [(X, X.clone()), twice(X)]),
    "one tensor, by a function": (by_function, [(X, X.clone()), twice(X)]),
    "one tensor, in a set": (in_a_set, [(X, X.clone()), twice(X)]),
    "one tensor, as a key": (as_a_key, [(X, X.clone()), twice(X)]),
    "one list": (of_lists, [([X], [X.clone()]), twice([X])]),
    "one object": (of_objects, [(Held(X), Held(X.clone())), twice(Held(X))]),
}


@torch.no_grad()
@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("reverse", [False, True])
def test_each_call_has_its_own_program(tmp_path: Path, what: str, reverse: bool) -> None:
    function, calls = CALLS[what]
    check_calls(function, calls[:: -1 if reverse else 1], tmp_path)


class Weights(nn.Module):
    total: Tensor
    other: Tensor

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("total", torch.ones(2, 3))
        self.register_buffer("other", torch.zeros(2, 3))
        self.asks = cache_compile(self.asking, cache_dir=folder / "a")
        self.compares = cache_compile(self.comparing, cache_dir=folder / "b")
        self.writes = cache_compile(self.writing, cache_dir=folder / "c")
        self.adds = cache_compile(self.adding, cache_dir=folder / "d")
        self.ties = cache_compile(self.are_tied, cache_dir=folder / "e")

    def are_tied(self, x: Tensor) -> Tensor:
        held = torch.tensor([1.0, 2.0, 3.0])
        return x * held * (2 if self.total is self.other else 3)

    def asking(self, x: Tensor) -> Tensor:
        return x * self.weight * (2 if self.weight.requires_grad else 3)

    def comparing(self, x: Tensor) -> Tensor:
        return x * 2 if x is self.total else x * 3

    def writing(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2 + self.total

    def adding(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return x * 2 + self.other


@torch.no_grad()
def test_two_weights_that_become_one(tmp_path: Path) -> None:
    for _ in range(2):  # the second loads what the first has kept
        model = Weights(tmp_path)
        first = model.other
        for other in (first, model.total, first.clone(), model.total):
            model.other = other
            for _ in range(2):
                assert_close(model.ties(X), model.are_tied(X))
        assert model.ties.statistics["uncached"] == 0


@torch.no_grad()
def test_a_weight_that_requires_grad_no_more(tmp_path: Path) -> None:
    model = Weights(tmp_path)
    for require in (True, False, True):
        model.weight.requires_grad_(require)
        for _ in range(2):
            assert_close(model.asks(X), model.asking(X))


@torch.no_grad()
def test_an_argument_that_is_a_weight(tmp_path: Path) -> None:
    model = Weights(tmp_path)
    for x in (X, model.total, X):
        assert_close(model.compares(x), model.comparing(x))


@torch.no_grad()
def test_an_argument_that_is_written_to_and_lies_in_a_weight(tmp_path: Path) -> None:
    for _ in range(2):
        model, eager = Weights(tmp_path), Weights(tmp_path)
        for mine, its in ((X, X), (X, X), (model.total, eager.total), (model.total, eager.total)):
            a, b = (mine.clone(), its.clone()) if mine is X else (mine, its)
            assert_close(model.writes(a), eager.writing(b))
            assert_close(a, b)
        a, b = model.total.view(2, 3), eager.total.view(2, 3)
        assert_close(model.writes(a), eager.writing(b))


class Holding(nn.Module):
    """Reads a tensor of its own, and writes to an argument."""

    def __init__(self, held: Tensor, folder: Path) -> None:
        super().__init__()
        self.held = held
        self.writes = cache_compile(self.writing, dynamic=False, cache_dir=folder)

    def writing(self, x: Tensor) -> Tensor:
        x.add_(1)
        return self.held * 2


@pytest.mark.parametrize("made", [Tensor.clone, nn.Parameter])
@torch.no_grad()
def test_an_argument_in_whose_memory_a_tensor_comes_to_lie(
    made: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    """The tensor stays the same object, and the argument where it is."""
    model, x = Holding(made(torch.ones(2, 3)), tmp_path), X.clone()
    for _ in range(3):
        assert_close(model.writes(x), torch.full((2, 3), 2.0))
    model.held.data = x
    for n in range(5, 7):
        assert_close(model.writes(x), (X + n - 1) * 2)
        assert_close(x, X + n - 1)


@torch.no_grad()
def test_a_buffer_that_is_written_to_gets_a_second_name(tmp_path: Path) -> None:
    for _ in range(2):
        model, eager = Weights(tmp_path), Weights(tmp_path)
        for tied in (False, True):
            if tied:
                model.other, eager.other = model.total, eager.total
            for _ in range(2):
                assert_close(model.adds(X), eager.adding(X))


class Loud(Tensor):
    """Ten times what a product would be."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 10 if func is torch.mul else result


@torch.no_grad()
def test_a_class_that_replaces_operators_gets_no_program_of_plain_tensors(tmp_path: Path) -> None:
    model = OfFunction(lambda x: torch.mul(x, 3), tmp_path)
    for _ in range(2):
        assert_close(model.run(X), X * 3)
    try:  # torch 2.15 traces such a class, earlier versions do not
        found = model.run(X.as_subclass(Loud))
    except (InputError, RuntimeError, TypeError):
        return
    assert_close(found.as_subclass(Tensor), X * 30)

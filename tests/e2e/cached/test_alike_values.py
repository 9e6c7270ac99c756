"""Cached methods called with values that look alike and are not the same."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from kernelmill.inference import cache_compile
from tests.e2e.cached.of_function import check_calls
from tests.kept_methods import KEPT

pytestmark = KEPT
X = torch.ones(3)


class Mask(enum.IntFlag):
    FIRST = 1
    SECOND = 2


class Number(int):
    def __repr__(self) -> str:
        return "Number"


class Real(float):
    def __repr__(self) -> str:
        return "Real"


class Name(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "Name"


def by_first_key(table: dict[Any, Tensor]) -> Tensor:
    key = next(iter(table))
    return table[key] * (2 if key is True else 3)


def times(x: Tensor, number: Any) -> Tensor:
    return x * int(number)


def halves(x: Tensor, number: float) -> Tensor:
    return x * float(number)


def named(x: Tensor, name: str) -> Tensor:
    return x * 2 if name == "double" else x * 3


CALLS: dict[str, tuple[Callable[..., Tensor], list[tuple[Any, ...]]]] = {
    "keys that are equal": (by_first_key, [({1: X},), ({True: X},)]),
    "flags without a name": (times, [(X, Mask(8)), (X, Mask(16)), (X, Mask(0))]),
    "flags": (times, [(X, Mask.FIRST), (X, Mask.FIRST | Mask.SECOND)]),
    "integers of a class": (times, [(X, Number(2)), (X, Number(3))]),
    "numbers of a class": (halves, [(X, Real(2.5)), (X, Real(3.5))]),
    "texts of a class": (named, [(X, Name("double")), (X, Name("triple"))]),
}


@torch.no_grad()
@pytest.mark.parametrize("what", CALLS)
def test_each_value_has_its_own_program(tmp_path: Path, what: str) -> None:
    function, calls = CALLS[what]
    check_calls(function, calls, tmp_path)


class Table(nn.Module):
    """Reads the keys of a dict of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.table: dict[Any, float] = {1: 2.0}
        self.flag = Mask(8)
        self.run = cache_compile(self.step, cache_dir=folder)

    def step(self, x: Tensor) -> Tensor:
        key = next(iter(self.table))
        return x * self.table[key] * (2 if key is True else 3) + int(self.flag)


@torch.no_grad()
def test_what_a_model_holds_is_changed_to_what_looks_alike(tmp_path: Path) -> None:
    model = Table(tmp_path)
    for _ in range(2):
        assert_close(model.run(X), model.step(X))
        del model.table[1]
        model.table[True] = 2.0
        assert_close(model.run(X), model.step(X))
        del model.table[True]
        model.table[1] = 2.0
        model.flag = Mask(16)
        assert_close(model.run(X), model.step(X))
        model.flag = Mask(8)


class Signatures(nn.Module):
    """Methods whose parameters may not all be given by position."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.by_name = cache_compile(self.named, cache_dir=folder / "a")
        self.several = cache_compile(self.starred, cache_dir=folder / "b")
        self.options = cache_compile(self.doubly_starred, cache_dir=folder / "c")

    def named(self, *, a: Tensor, b: Tensor) -> Tensor:
        return a * 2 + b

    def starred(self, *xs: Tensor) -> Tensor:
        return xs[0] * 2  # twice the tensor, or a tuple of twice as many

    def doubly_starred(self, **options: Tensor) -> Tensor:
        return options["a"] * 2


@torch.no_grad()
def test_calls_that_the_signature_refuses_are_refused_when_warm(tmp_path: Path) -> None:
    model, y = Signatures(tmp_path), torch.full((3,), 2.0)
    for _ in range(3):
        assert_close(model.by_name(a=X, b=y), X * 2 + y)
        assert_close(model.several(X), X * 2)
        assert_close(model.options(a=X), X * 2)
    for method, args in ((model.by_name, (X, y)), (model.options, ({"a": X},))):
        with pytest.raises(TypeError, match="positional"):
            method(*args)
    pair = model.several((X,))
    assert isinstance(pair, tuple) and torch.equal(pair[0], X) and torch.equal(pair[1], X)

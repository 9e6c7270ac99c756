"""What a cached method calls or reads of its arguments is changed between calls: their code and
classes, and all that test_unseen_changes.py changes of its owner."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from kernelmill.inference import cache_compile
from tests.e2e.cached.test_unseen_changes import CASES, X
from tests.kept_methods import KEPT

pytestmark = KEPT


class Given(nn.Module):
    def __init__(self, read: Callable[[Tensor, Any], Tensor], folder: Path) -> None:
        super().__init__()
        self._read = read
        self.run = cache_compile(self.step, cache_dir=folder)

    def step(self, x: Tensor, given: Any) -> Tensor:
        return self._read(x, given)


def check_change(
    make: Callable[[], Any],
    read: Callable[[Tensor, Any], Tensor],
    change: Callable[[Any], Any],
    folder: Path,
) -> None:
    """`change` may return another object to pass."""
    for _ in range(2):  # the second loads what the first has kept
        given, model = make(), Given(read, folder)
        for _ in range(3):
            assert_close(model.run(X, given), model.step(X, given))
        changed = change(given)
        given = given if changed is None else changed
        for _ in range(3):
            assert_close(model.run(X, given), model.step(X, given))


@torch.no_grad()
@pytest.mark.parametrize("what", CASES)
def test_what_is_seen_of_an_owner_is_seen_of_an_argument(what: str, tmp_path: Path) -> None:
    make, read, change = CASES[what]

    def changed(given: Any) -> Any:
        holder: Any = types.SimpleNamespace(holds=given)
        change(holder)
        return holder.holds

    check_change(make, read, changed, tmp_path)


def scaled(rate: float = 2.0, more: float = 0.0) -> Any:
    return lambda x: x * rate + more


def around(function: Any) -> Any:
    @wraps(function)
    def wrapper(x: Tensor) -> Tensor:
        return function(x) + 1

    return wrapper


def other_code(function: Any) -> None:
    function.__code__ = scaled(more=7.0).__code__ if function.__closure__ else fivefold.__code__


def fivefold(x: Any, *more: Any) -> Any:
    return x * 5


def fivefold_of(owner: Any, x: Tensor) -> Tensor:
    return x * 5


def kind_of(*bases: type) -> Any:
    """Returns a new class."""

    class Made(*bases):
        rate = 2.0

        class Inner:
            def times(self, x: Tensor) -> Tensor:
                return x * 2

        def times(self, x: Tensor) -> Tensor:
            return x * self.rate

        def __call__(self, x: Tensor) -> Tensor:
            return x * 2

        def forward(self, x: Tensor) -> Tensor:
            return x * 2

        @property
        def own(self) -> float:
            return 2.0

        @staticmethod
        def static(x: Tensor) -> Tensor:
            return x * 2

        @classmethod
        def of_class(cls, x: Tensor) -> Tensor:
            return x * cls.rate

    return Made


def derived() -> Any:
    """Returns an object of a class that defines nothing itself."""
    return type("Derived", (kind_of(),), {})()


def put(name: str, value: Any, base: int = 0) -> Callable[[Any], None]:
    """Returns the replacement of a member of a class, or of that of an object."""

    def change(given: Any) -> None:
        kind = given if isinstance(given, type) else type(given)
        setattr(kind.__mro__[base], name, value)

    return change


def call(x: Tensor, given: Any) -> Tensor:
    return given(x)


class Found:
    """Is found by its name; a test puts its method back."""

    def times(self, x: Tensor) -> Tensor:
        return x * 2


OWN = Found.times


def found() -> Any:
    Found.times = OWN  # type: ignore[method-assign]
    return Found


Case = tuple[Callable[[], Any], Callable[[Tensor, Any], Tensor], Callable[[Any], Any]]
CODE: dict[str, Case] = {
    "code of a closure": (scaled, call, other_code),
    "cell": (scaled, call, lambda o: setattr(o.__closure__[1], "cell_contents", 5.0)),
    "code inside of a closure": (
        lambda: around(scaled()),
        call,
        lambda o: other_code(o.__wrapped__),
    ),
    "code of a partial": (lambda: partial(scaled()), call, lambda o: other_code(o.func)),
    "code in a list": (lambda: [scaled()], lambda x, o: o[0](x), lambda o: other_code(o[0])),
    "code under an attribute": (
        lambda: types.SimpleNamespace(function=scaled()),
        lambda x, o: o.function(x),
        lambda o: other_code(o.function),
    ),
    "code of a bound method": (
        lambda: kind_of()().times,
        call,
        lambda o: setattr(o.__func__, "__code__", fivefold_of.__code__),
    ),
    "defaults": (
        lambda: lambda x, rate=2.0: x * rate,
        call,
        lambda o: setattr(o, "__defaults__", (5.0,)),
    ),
    "default that is a list": (
        lambda: lambda x, rates=[2.0]: x * rates[0],
        call,
        lambda o: o.__defaults__[0].__setitem__(0, 5.0),
    ),
    "method": (lambda: kind_of()(), lambda x, o: o.times(x), put("times", fivefold_of)),
    "method of a base": (derived, lambda x, o: o.times(x), put("times", fivefold_of, 1)),
    "method in a nearer class": (derived, lambda x, o: o.times(x), put("times", fivefold_of)),
    "code of a method": (
        lambda: kind_of()(),
        lambda x, o: o.times(x),
        lambda o: setattr(type(o).times, "__code__", fivefold_of.__code__),
    ),
    "method of a class": (kind_of, lambda x, o: o().times(x), put("times", fivefold_of)),
    "method of a class that is found": (
        found,
        lambda x, o: o().times(x),
        put("times", fivefold_of),
    ),
    "method of a class in a class": (
        kind_of,
        lambda x, o: o.Inner().times(x),
        lambda o: setattr(o.Inner, "times", fivefold_of),
    ),
    "call": (lambda: kind_of()(), call, put("__call__", fivefold_of)),
    "property": (lambda: kind_of()(), lambda x, o: x * o.own, put("own", property(lambda o: 5.0))),
    "attribute of a class": (lambda: kind_of()(), lambda x, o: o.of_class(x), put("rate", 5.0)),
    "static method": (kind_of, lambda x, o: o.static(x), put("static", staticmethod(fivefold))),
    "class method": (
        kind_of,
        lambda x, o: o.of_class(x),
        put("of_class", classmethod(fivefold_of)),
    ),
    "forward": (
        lambda: kind_of(nn.Module)(),
        lambda x, o: o.forward(x),
        put("forward", fivefold_of),
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("what", CODE)
def test_changed_code_is_seen(what: str, tmp_path: Path) -> None:
    check_change(*CODE[what], tmp_path)


@torch.no_grad()
def test_a_class_is_watched_whichever_like_it_came_last(tmp_path: Path) -> None:
    model = Given(lambda x, o: o.times(x), tmp_path)
    first, second = kind_of()(), kind_of()()
    for given in (first, first, first, second):
        assert_close(model.run(X, given), X * 2)
    put("times", fivefold_of)(first)
    for given in (second, second, first, first):
        assert_close(model.run(X, given), given.times(X))


@torch.no_grad()
def test_functions_made_for_each_call_share_a_program(tmp_path: Path) -> None:
    model = Given(call, tmp_path)
    for n in range(100):  # more than are recognised
        rate = 2.0 + n % 2
        assert_close(model.run(X, scaled(rate)), X * rate)
    assert model.run.statistics["traced"] == 2

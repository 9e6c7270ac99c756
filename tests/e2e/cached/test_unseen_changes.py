"""What a cached method reads is changed where no dict or list tells of it."""

from __future__ import annotations

import argparse
import collections
import copy
import functools
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.testing import assert_close

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT
X = torch.arange(6.0).reshape(2, 3)


class Slotted:
    __slots__ = ("rate", "tensor")

    def __init__(self) -> None:
        self.rate, self.tensor = 2.0, torch.ones(3)


def two() -> tuple[Callable[[Tensor], Tensor], Callable[[float], None]]:
    """A function, and one that changes the variable that both have."""
    rate = 2.0

    def times(x: Tensor) -> Tensor:
        return x * rate

    def change(number: float) -> None:
        nonlocal rate
        rate = number

    return times, change


def in_order(x: Tensor, values: Iterator[Any]) -> Tensor:
    for value in values:
        x = x * 2 + value
    return x


def of_keys(x: Tensor, table: Any) -> Tensor:
    for key, value in table.items():
        x = x * value + (1 if key == "a" else 5)
    return x


class Reader(nn.Module):
    """Reads what it `holds` by a function."""

    def __init__(self, made: Any, read: Callable[[Tensor, Any], Tensor], folder: Path) -> None:
        super().__init__()
        self.holds, self._read = made, read
        self.run = cache_compile(self.step, cache_dir=folder)

    def step(self, x: Tensor) -> Tensor:
        return self._read(x, self.holds)


def held(value: Any) -> Callable[[Reader], None]:
    return lambda model: setattr(model, "holds", value)


def function() -> Callable[..., float]:
    def rate(a: float = 2.0, *, b: float = 1.0) -> float:
        return a * b

    return rate


def other_code(m: Reader) -> None:
    m.holds.__code__ = (lambda a, *, b: a + b + 7.0).__code__


class Slotless:
    more = 7.0


class Base:
    """Each object gets a class of its own."""

    def __init__(self) -> None:
        self.own = 2.0

    def __new__(cls) -> Any:
        kinds = type("Inner", (cls,), {"level": 2.0}), {"__init__": cls.__init__}
        return object.__new__(type("Thing", kinds[:1], kinds[1]))


def in_class(name: str, value: Any) -> Callable[[Reader], None]:
    return lambda model: setattr(type(model.holds), name, value)


def has(x: Tensor, o: Any) -> Tensor:
    return x * (2 if hasattr(o, "more") else 3)


def caught(x: Tensor, o: Any) -> Tensor:
    try:
        return x * o.more
    except AttributeError:
        return x - 1


def caught_key(x: Tensor, o: Any) -> Tensor:
    try:
        return x * o["more"]
    except KeyError:
        return x - 1


def caught_number(x: Tensor, o: Any) -> Tensor:
    try:
        return x * o[1]
    except KeyError:
        return x - 1


def caught_in_what_it_made(x: Tensor, o: Any) -> Tensor:
    try:
        return x * Slotless().less * {"a": 2.0}["b"]
    except (AttributeError, KeyError):
        return x * o


def of_gradient(x: Tensor, o: Any) -> Tensor:
    return x if o.grad is None else x * o.grad


def with_gradient(model: Reader) -> None:
    model.holds.grad = torch.full((3,), 5.0)


def noted_tensor(note: float) -> Tensor:
    tensor: Any = torch.ones(3)
    tensor.note = note
    return tensor


class Pair:
    def __init__(self) -> None:
        self.one, self.other = [1.0], [1.0]


def is_one(x: Tensor, o: Any) -> Tensor:
    return x * (2 if o.one is o.other else 3)


def are_equal(x: Tensor, o: Any) -> Tensor:
    return x * (2 if o.one == o.other else 3)


def made_one(model: Reader) -> None:
    model.holds.one = model.holds.other


def two_objects() -> Pair:
    pair: Any = Pair()
    pair.one, pair.other = Slotted(), Slotted()
    return pair


def two_tensors() -> Pair:
    pair: Any = Pair()
    pair.one, pair.other = torch.ones(3), torch.ones(3)
    return pair


class Chosen:
    """Has one of its methods under the name of the other."""

    def first(self) -> float:
        return 2.0

    def second(self) -> float:
        return 3.0


def decorated(function: Callable[[Any], float]) -> Callable[[Any], float]:
    held = HELD

    @functools.wraps(function)
    def wrapper(owner: Any) -> float:
        return function(owner) * held[0]

    return wrapper


HELD = [2.0]


class Decorated:
    held = HELD

    @property
    @decorated
    def rate(self) -> float:
        return 3.0


class Kind(type):
    rate = 2.0


class OfKind(metaclass=Kind):
    """Has an attribute that its class has not."""


KEYS = {"a": 2.0, "b": 3.0}
Case = tuple[Callable[[], Any], Callable[[Tensor, Any], Tensor], Callable[[Reader], Any]]
CASES: dict[str, Case] = {
    "slot": (Slotted, lambda x, o: x * o.rate, lambda m: setattr(m.holds, "rate", 5.0)),
    "tensor in a slot": (
        Slotted,
        lambda x, o: x * o.tensor,
        lambda m: setattr(m.holds, "tensor", torch.full((3,), 5.0)),
    ),
    "element of a deque": (
        lambda: collections.deque([2.0, 3.0]),
        in_order,
        lambda m: m.holds.__setitem__(0, 7.0),
    ),
    "another element in a deque": (
        lambda: collections.deque([2.0, 3.0]),
        in_order,
        lambda m: m.holds.append(7.0),
    ),
    "count": (
        lambda: collections.Counter(a=2, b=3),
        lambda x, o: x * o["a"],
        lambda m: m.holds.update(a=1),
    ),
    "order of an OrderedDict": (
        lambda: collections.OrderedDict(a=2.0, b=3.0),
        lambda x, o: in_order(x, o.values()),
        lambda m: m.holds.move_to_end("a"),
    ),
    "order behind a proxy": (
        lambda: types.MappingProxyType({"b": 3.0, "a": 2.0}),
        of_keys,
        lambda m: setattr(m, "holds", types.MappingProxyType({"a": 3.0, "b": 2.0})),
    ),
    "keys behind a proxy": (
        lambda: types.MappingProxyType({"a": 2.0, "b": 3.0}),
        of_keys,
        held(types.MappingProxyType({"c": 2.0, "d": 3.0})),
    ),
    "order of a set": (lambda: {0, 8}, in_order, held({8, 0})),
    "order of a frozenset": (lambda: frozenset([0, 8]), in_order, held(frozenset([8, 0]))),
    "variable of a closure": (two, lambda x, o: o[0](x), lambda m: m.holds[1](5.0)),
    "overload of an operator": (
        lambda: torch.ops.aten.add.Tensor,
        lambda x, o: o(x, x),
        held(torch.ops.aten.mul.Tensor),
    ),
    "operator": (lambda: torch.ops.aten.add, lambda x, o: o(x, x), held(torch.ops.aten.mul)),
    "function of numpy": (
        lambda: np.add,
        lambda x, o: torch.from_numpy(o(x.numpy(), x.numpy())),
        held(np.multiply),
    ),
    "default": (
        function,
        lambda x, o: x * o(),
        lambda m: setattr(m.holds, "__defaults__", (5.0,)),
    ),
    "keyword default": (
        function,
        lambda x, o: x * o(),
        lambda m: setattr(m.holds, "__kwdefaults__", {"b": 5.0}),
    ),
    "code": (function, lambda x, o: x * o(), other_code),
    "property in the class": (
        Base,
        lambda x, o: x * o.own,
        in_class("own", property(lambda self: 5.0)),
    ),
    "attribute in a nearer class": (Base, lambda x, o: x * o.level, in_class("level", 5.0)),
    "attribute in the class, looked for": (Base, has, in_class("more", 5.0)),
    "attribute in the class of a module, looked for": (
        lambda: type("Made", (nn.ReLU,), {})(),
        has,
        in_class("more", 5.0),
    ),
    "buffer, looked for": (
        nn.ReLU,
        has,
        lambda m: m.holds.register_buffer("more", torch.ones(3)),
    ),
    "attribute in the class, with a default": (
        Base,
        lambda x, o: x * getattr(o, "more", 3.0),
        in_class("more", 5.0),
    ),
    "attribute that was not there": (Base, caught, lambda m: setattr(m.holds, "more", 5.0)),
    "attribute in the class that was not there": (Base, caught, in_class("more", 5.0)),
    "key that was not there": (dict, caught_key, lambda m: m.holds.update(more=5.0)),
    "number that was not there": (dict, caught_number, lambda m: m.holds.update({1: 5.0})),
    "number where errors of what is made are caught": (
        lambda: 2.0,
        caught_in_what_it_made,
        held(3.0),
    ),
    "gradient": (lambda: nn.Parameter(torch.ones(3)), of_gradient, with_gradient),
    "attribute of another tensor": (
        lambda: noted_tensor(2.0),
        lambda x, o: x * o.note,
        lambda m: setattr(m, "holds", noted_tensor(5.0)),
    ),
    "attribute of another tensor, looked for": (
        lambda: torch.ones(3),
        lambda x, o: x * (2 if hasattr(o, "note") else 3),
        lambda m: setattr(m, "holds", noted_tensor(5.0)),
    ),
    "two lists that become one": (Pair, is_one, made_one),
    "two objects that become one": (two_objects, is_one, made_one),
    "two objects that become equal": (two_objects, are_equal, made_one),
    "two tensors that become one": (two_tensors, is_one, made_one),
    "attribute of a class of Python's library": (
        lambda: argparse.Namespace(rate=2.0),
        lambda x, o: x * o.rate,
        lambda m: setattr(m.holds, "rate", 5.0),
    ),
    "attribute of a class of Python's library, looked for": (
        lambda: argparse.Namespace(rate=2.0),
        has,
        lambda m: setattr(m.holds, "more", 5.0),
    ),
    "variable of a decorator's closure, behind a property": (
        Decorated,
        lambda x, o: x * o.rate,
        lambda m: Decorated.held.__setitem__(0, Decorated.held[0] + 1),
    ),
    "attribute of a class between underscores": (
        lambda: type("Made", (), {"__rates__": {"a": 2.0}})(),
        lambda x, o: x * o.__rates__["a"],
        lambda m: m.holds.__rates__.update(a=5.0),
    ),
    "attribute in a __dict__": (
        Slotless,
        lambda x, o: x * o.__dict__.get("more", 3.0),
        lambda m: setattr(m.holds, "more", 5.0),
    ),
    "partial": (
        lambda: functools.partial(torch.mul, other=2.0),
        lambda x, o: o(x),
        held(functools.partial(torch.mul, other=3.0)),
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("what", CASES)
def test_a_change_is_seen(tmp_path: Path, what: str) -> None:
    make, read, change = CASES[what]
    for _ in range(2):  # the second loads what the first has kept
        model = Reader(make(), read, tmp_path)
        for _ in range(2):
            assert_close(model.run(X), model.step(X))
        change(model)
        for _ in range(2):
            assert_close(model.run(X), model.step(X))


@torch.no_grad()
def test_a_method_of_a_class_is_another_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Chosen.first
    for _ in range(2):
        model = Reader(Chosen(), lambda x, o: x * o.first(), tmp_path)
        for function in (own, lambda self: 5.0, Chosen.second, lambda self: 7.0, own):
            monkeypatch.setattr(Chosen, "first", function)
            assert_close(model.run(X), model.step(X))


@torch.no_grad()
def test_another_process_has_another_metaclass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rate in (2.0, 5.0, 2.0):
        monkeypatch.setattr(Kind, "rate", rate)
        model = Reader(None, lambda x, o: x * OfKind.rate, tmp_path)
        assert_close(model.run(X), model.step(X))


def test_marks_without_a_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = object(), object()
    model = Reader(first, lambda x, o: x * 2 if o is first else x * 3, tmp_path)
    with torch.no_grad():
        for value in (first, second, first):
            model.holds = value
            assert_close(model.run(X), model.step(X))


def of_free_variable() -> tuple[Any, Callable[[Any], None]]:
    rate: Any = 2.0

    class Model(nn.Module):
        def step(self, x: Tensor) -> Tensor:
            return x * rate

    def change(value: Any) -> None:
        nonlocal rate
        rate = value

    return Model(), change


@torch.no_grad()
def test_a_variable_around_the_method_is_seen_to_change(tmp_path: Path) -> None:
    for _ in range(2):
        model, change = of_free_variable()
        run = cache_compile(model.step, cache_dir=tmp_path)
        for rate in (2.0, 3.0, torch.ones(3), torch.full((3,), 5.0), 2.0):
            change(rate)
            for _ in range(2):
                assert_close(run(X), X * rate)


class Named(nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.run = cache_compile(self.step, cache_dir=folder / "a")
        self.choose = cache_compile(self.chosen, cache_dir=folder / "b")

    def step(self, x: Tensor, thing: Any) -> Tensor:
        return thing.method(x)

    def chosen(self, x: Tensor, kind: type) -> Tensor:
        return x * (2 if kind is KINDS[0] else 3)


KINDS: list[Any] = [
    type("Kind", (), {"method": method, "__module__": __name__})
    for method in (lambda self, x: x * 2, lambda self, x: x * 3)
]


@torch.no_grad()
def test_classes_of_one_name(tmp_path: Path) -> None:
    for _ in range(2):
        model = Named(tmp_path)
        for number in (0, 1, 0, 1):
            thing = KINDS[number]()
            assert_close(model.run(X, thing), thing.method(X))
            assert_close(model.choose(X, KINDS[number]), X * (2 + number))


@pytest.mark.needs_internal("modules.global_hooks")
@torch.no_grad()
def test_hooks_of_all_modules(tmp_path: Path) -> None:
    for _ in range(2):
        model = Reader(nn.ReLU(), lambda x, o: o(x), tmp_path)
        assert_close(model.run(X), X)
        for register in (register_module_forward_hook, register_module_forward_pre_hook):
            hook = register(lambda module, args, result=None: args[0] * 5)
            try:
                assert_close(model.run(X), X * 5)
            finally:
                hook.remove()
            assert_close(model.run(X), X)


class Halved(nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.run = cache_compile(self.step, cache_dir=folder)

    def step(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            return x @ x.T


@torch.no_grad()
def test_autocast_in_the_method_has_the_dtype_that_is_set(tmp_path: Path) -> None:
    before = torch.get_autocast_dtype("cpu")
    model = Halved(tmp_path)
    try:
        for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
            torch.set_autocast_dtype("cpu", dtype)
            assert model.run(X).dtype == dtype
    finally:
        torch.set_autocast_dtype("cpu", before)


class Scale:
    def __init__(self) -> None:
        self.rate = 2.0


class Scaled(nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.scale = Scale()
        self.kept = cache_compile(self.times, cache_dir=folder)

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        return x * self.scale.rate * factor


@torch.no_grad()
def test_copies_change_no_class(tmp_path: Path) -> None:
    """`copy` and `pickle` leave the names of slots in the classes of what they copy."""
    first = Scaled(tmp_path)
    assert_close(first.kept(X, X), first.times(X, X))
    copy.deepcopy((first.scale, X, nn.Parameter(X)))
    assert "__slotnames__" in vars(Scale)
    again = Scaled(tmp_path)
    assert_close(again.kept(X, X), again.times(X, X))
    assert (again.kept.statistics["loaded"], again.kept.statistics["traced"]) == (1, 0)
    assert_close(first.kept(X, X), first.times(X, X))
    assert first.kept.statistics["traced"] == 1

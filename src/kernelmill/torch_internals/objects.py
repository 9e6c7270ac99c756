"""Where CPython keeps the fields of objects that are read without asking it: each place is tried on
objects of our own, and what is not found is not read.

`runtime/native/foreign.h` has the same places in C. Sources: Include/cpython/{object,listobject,
tupleobject,dictobject,setobject}.h of CPython 3.11 to 3.14.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from types import FunctionType, MappingProxyType
from typing import Any

import torch

from kernelmill.torch_internals.registry import internal

TYPE_AT, SIZE_AT, INNER_AT = 8, 16, 24
"""Where an object has its class; where a tuple, list or dict has its size, a float or device its
value; where a list has the address of its items, a set its size, a dict its version."""

DEVICE = 0xFFFF
"""The bits of a device's field that count: its type and number."""

_MANAGED_AT, _MANAGED_DICT = -24, 1 << 4
_CALLS_IN_PYTHON = "calls are checked in Python"


def word_at(address: int) -> int:
    """The word in memory there."""
    return ctypes.c_int64.from_address(address).value


def word_in(owner: object, offset: int) -> int:
    """The word so many bytes behind the beginning of an object."""
    return word_at(id(owner) + offset)


def field_of(value: object) -> int:
    """The first field of an object, as far as its class has one there: of a float or device where
    `plain_fields` works; of another object its user sees whether it is what it is to be."""
    return word_at(id(value) + SIZE_AT)


def distance_to(address: int, owner: object) -> int:
    """How many bytes behind the beginning of an object a place in memory is."""
    return address - id(owner)


@internal(
    "objects.fields",
    reason="checking the arguments of a call natively",
    fallback=_CALLS_IN_PYTHON,
)
def tuple_items() -> int | None:
    """Where a tuple has its items; None where objects are not laid out as they are read."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:  # t: without the GIL
        return None
    a, b = object(), object()
    pair, listed, named, some = (a, b), [a, b], {"a": a, "b": b}, {a, b}
    samples: tuple[object, ...] = (pair, listed, named)
    right = (
        all(word_at(id(sample) + TYPE_AT) == id(type(sample)) for sample in samples)
        and all(word_at(id(sample) + SIZE_AT) == 2 for sample in samples)
        and [word_at(word_at(id(listed) + INNER_AT) + 8 * n) for n in range(2)] == [id(a), id(b)]
        and word_at(id(some) + INNER_AT) == 2
    )
    places = (INNER_AT, INNER_AT + 8)  # behind its hash from 3.14 on
    items = (n for n in places if [word_at(id(pair) + n + 8 * i) for i in (0, 1)] == [id(a), id(b)])
    return next(items, None) if right else None


@internal(
    "objects.versions",
    reason="seeing by one word that nothing in a dict has changed",
    fallback="what was read from dicts is compared one by one",
    applies=sys.version_info < (3, 12),  # from then on CPython tells of changes: native.watchers
)
def dict_version() -> Callable[[dict[Any, Any]], int] | None:
    """The function that gives the version of a dict, which every change of it changes."""

    def version(owner: dict[Any, Any]) -> int:
        return word_at(id(owner) + INNER_AT)

    class Sample:
        pass

    sample, plain = Sample(), {"a": object()}
    seen = [version(vars(sample)), version(plain)]
    for n in range(3):
        sample.a = object()  # type: ignore[attr-defined]  # as a user's attribute
        seen.append(version(vars(sample)))
        setattr(sample, f"b{n}", n)
        seen.append(version(vars(sample)))
        plain["a"] = object()
        seen.append(version(plain))
        plain[f"b{n}"] = object()
        seen.append(version(plain))
        del plain[f"b{n}"]
        seen.append(version(plain))
    still = seen[-1] == version(plain)
    return version if still and len(set(seen)) == len(seen) else None


@internal(
    "objects.resolution",
    reason="watching the bases of classes, and looking attributes up in them natively",
    fallback="calls with objects that need it are checked in Python",
)
def resolution_at() -> int | None:
    """Where a class has its __mro__, which another takes the place of when its bases change."""

    class Sample:
        pass

    kinds = (object, int, Sample, torch.Tensor, torch.nn.Module)
    offsets = range(SIZE_AT, 400, 8)
    found = (n for n in offsets if all(word_at(id(k) + n) == id(k.__mro__) for k in kinds))
    return next(found, None)


@internal(
    "objects.plain_fields",
    reason="comparing floats and devices among the arguments of a call natively",
    fallback="they are compared natively by identity, and by value in Python",
)
def plain_fields() -> bool | None:
    """Whether a float's and a device's value is its first field."""
    numbers = (0.0, -1.5, 3.25e10)
    devices = [torch.device(name) for name in ("cpu", "meta", "cuda:3")]
    right = all(
        ctypes.c_double.from_address(id(number) + SIZE_AT).value == number for number in numbers
    ) and [field_of(device) & DEVICE for device in devices] == [0xFF00, 0xFF0E, 0x0301]
    return right or None


@internal(
    "objects.functions",
    reason="seeing natively that a function keeps its code and defaults",
    fallback="calls of cached methods are checked in Python",
)
def function_fields() -> dict[str, int] | None:
    """Where a function has these fields; a null pointer stands for no defaults."""

    def sample(a: object = (), *, b: object = ()) -> None:
        pass

    def plain() -> None:
        pass

    assert isinstance(sample, FunctionType) and isinstance(plain, FunctionType)
    found: dict[str, int] = {}
    offsets = range(SIZE_AT, FunctionType.__basicsize__, 8)
    for field in ("__code__", "__defaults__", "__kwdefaults__"):
        wanted = id(getattr(sample, field))
        places = [n for n in offsets if word_at(id(sample) + n) == wanted]
        if len(places) != 1:
            return None
        (found[field],) = places
    none = [word_at(id(plain) + found[name]) for name in ("__defaults__", "__kwdefaults__")]
    return found if none == [0, 0] else None


def _space_at(owner: object) -> int:
    """Where an object should have the address of its __dict__; 0 for nowhere."""
    kind, space = type(owner), id(vars(owner))
    offset = _MANAGED_AT if kind.__flags__ & _MANAGED_DICT else max(kind.__dictoffset__, 0)
    return offset if offset and word_at(id(owner) + offset) == space else 0


@internal(
    "objects.spaces",
    reason="watching natively that an object keeps its __dict__",
    fallback="methods behind cache_compile look at what they read in Python",
)
def space_at() -> Callable[[object], int] | None:
    """The function that gives where an object has the address of its __dict__; 0 where that is not
    found."""

    class Sample:
        pass

    def function() -> None:
        pass

    assert isinstance(function, FunctionType)
    return _space_at if _space_at(Sample()) and _space_at(function) else None


def dict_of(owner: MappingProxyType[Any, Any]) -> dict[Any, Any] | None:
    """The dict behind what `vars` gives for a class."""
    (found,) = gc.get_referents(owner)
    return found if isinstance(found, dict) else None

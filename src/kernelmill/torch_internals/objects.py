"""Offsets of fields in CPython's objects, for direct reads: each is tested on objects of our own,
and a field without a known offset is not read.

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
"""Offsets: of an object's class; of the size of a tuple, list or dict and the value of a float or
device; of the address of a list's items, a set's size and a dict's version."""

DEVICE = 0xFFFF
"""The bits of a device's field that hold its type and number."""

_MANAGED_AT, _MANAGED_DICT = -24, 1 << 4
_CALLS_IN_PYTHON = "calls are checked in Python"


def word_at(address: int) -> int:
    """Return the word at an address."""
    return ctypes.c_int64.from_address(address).value


def word_in(owner: object, offset: int) -> int:
    """Return the word at a byte offset from the beginning of an object."""
    return word_at(id(owner) + offset)


def field_of(value: object) -> int:
    """Return the word behind an object's header: the value of a float or device where
    `plain_fields` works; for other classes the caller has to know its meaning."""
    return word_at(id(value) + SIZE_AT)


def distance_to(address: int, owner: object) -> int:
    """Return the offset in bytes of an address from the beginning of an object."""
    return address - id(owner)


@internal(
    "objects.fields",
    reason="checking the arguments of a call natively",
    fallback=_CALLS_IN_PYTHON,
)
def tuple_items() -> int | None:
    """Return the offset of a tuple's items; None where objects have an unknown layout."""
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
    """Return the function that gives the version of a dict, which differs after every change."""

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
    """Return the offset of a class's __mro__, which is replaced when its bases change."""

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
    """Return True if the value of a float or device is its first field; else None."""
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
    """Return the offsets of a function's fields; a null pointer stands for no defaults."""

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
    """Return the offset of the address of an object's __dict__; 0 where it is not found."""
    kind, space = type(owner), id(vars(owner))
    offset = _MANAGED_AT if kind.__flags__ & _MANAGED_DICT else max(kind.__dictoffset__, 0)
    return offset if offset and word_at(id(owner) + offset) == space else 0


@internal(
    "objects.spaces",
    reason="watching natively that an object keeps its __dict__",
    fallback="methods behind cache_compile look at what they read in Python",
)
def space_at() -> Callable[[object], int] | None:
    """Return the function that gives the offset of the address of an object's __dict__; 0 where it
    is not found."""

    class Sample:
        pass

    def function() -> None:
        pass

    assert isinstance(function, FunctionType)
    return _space_at if _space_at(Sample()) and _space_at(function) else None


def dict_of(owner: MappingProxyType[Any, Any]) -> dict[Any, Any] | None:
    """Return the dict behind the `vars` of a class."""
    (found,) = gc.get_referents(owner)
    return found if isinstance(found, dict) else None

"""Where CPython and torch keep the fields that are read without asking them: each place is tried on
objects of our own, and what is not found is not read.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from functools import cache
from types import MappingProxyType
from typing import Any

import torch

from kernelmill.runtime.allocation import is_direct
from kernelmill.runtime.cells import impl_offset
from kernelmill.runtime.executor import executor
from kernelmill.runtime.layout import word

TYPE_AT, SIZE_AT, INNER_AT = 8, 16, 24
MANAGED_AT, MANAGED_DICT = -24, 1 << 4
"""Where CPython keeps the __dict__ of objects whose class has this flag (Include/object.h)."""


def word_at(address: int) -> int:
    """The word in memory there."""
    return word.from_address(address).value


@cache
def supported() -> bool:
    """Whether objects are laid out as km_quick reads them."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:  # t: without the GIL
        return False
    a, b = object(), object()
    pair, listed, named, some = (a, b), [a, b], {"a": a, "b": b}, {a, b}
    samples: tuple[object, ...] = (pair, listed, named)
    return (
        all(word_at(id(sample) + TYPE_AT) == id(type(sample)) for sample in samples)
        and all(word_at(id(sample) + SIZE_AT) == 2 for sample in samples)
        and tuple_items() > 0
        and [word_at(word_at(id(listed) + INNER_AT) + 8 * n) for n in range(2)] == [id(a), id(b)]
        and word_at(id(some) + INNER_AT) == 2
        and impl_offset() > 0
        and storage_offset() > 0
        and executor().has_quick
        and is_direct  # other tensors might be a mode's, and have no memory
    )


@cache
def tuple_items() -> int:
    """Where a tuple has its items; 0 when they are not found."""
    pair = (object(), object())
    items = [id(item) for item in pair]
    places = (INNER_AT, INNER_AT + 8)  # behind its hash from 3.14 on
    return next((n for n in places if [word_at(id(pair) + n + 8 * i) for i in (0, 1)] == items), 0)


@cache
def has_versions() -> bool:
    """Whether a dict has a version that every change of it changes. From Python 3.12 on its word
    says other things besides, and changes are told (changes.py)."""
    if sys.version_info >= (3, 12):
        return False

    class Sample:
        pass

    sample, plain = Sample(), {"a": object()}
    seen = [version_of(vars(sample)), version_of(plain)]
    for n in range(3):
        sample.a = object()  # type: ignore[attr-defined]  # as a user's attribute
        seen.append(version_of(vars(sample)))
        setattr(sample, f"b{n}", n)
        seen.append(version_of(vars(sample)))
        plain["a"] = object()
        seen.append(version_of(plain))
        plain[f"b{n}"] = object()
        seen.append(version_of(plain))
        del plain[f"b{n}"]
        seen.append(version_of(plain))
    still = seen[-1] == version_of(plain)
    return still and len(set(seen)) == len(seen)


def version_of(owner: dict[Any, Any]) -> int:
    """The version of a dict, where `has_versions`."""
    return word_at(id(owner) + INNER_AT)


@cache
def storage_offset() -> int:
    """Where a TensorImpl has the address of its storage; 0 when it is not found."""
    samples = (torch.empty(2), torch.nn.Parameter(torch.empty(1)), torch.empty(4)[1:])
    places = [(sample._cdata, sample.untyped_storage()._cdata) for sample in samples]
    offsets = range(8, 64, 8)
    return next(
        (n for n in offsets if all(word_at(at + n) == storage for at, storage in places)), 0
    )


@cache
def resolution_offset() -> int:
    """Where a class has its __mro__, which another takes the place of when its bases change; 0
    when it is not found."""

    class Sample:
        pass

    kinds = (object, int, Sample, torch.Tensor, torch.nn.Module)
    offsets = range(SIZE_AT, 400, 8)
    found = (n for n in offsets if all(word_at(id(k) + n) == id(k.__mro__) for k in kinds))
    return next(found, 0)


@cache
def has_plain_fields() -> bool:
    """Whether a float's and a device's value is its first field."""
    numbers = (0.0, -1.5, 3.25e10)
    devices = [torch.device(name) for name in ("cpu", "meta", "cuda:3")]
    return all(
        ctypes.c_double.from_address(id(number) + SIZE_AT).value == number for number in numbers
    ) and [word_at(id(device) + SIZE_AT) & DEVICE for device in devices] == [0xFF00, 0xFF0E, 0x0301]


DEVICE = 0xFFFF
"""The bits of a device's field that count: its type and number."""


def field_of(value: object) -> int:
    """The first field of a float or device, where `has_plain_fields`."""
    return word_at(id(value) + SIZE_AT)


def dict_of(owner: MappingProxyType[Any, Any]) -> dict[Any, Any] | None:
    """The dict behind what `vars` gives for a class."""
    (found,) = gc.get_referents(owner)
    return found if isinstance(found, dict) else None

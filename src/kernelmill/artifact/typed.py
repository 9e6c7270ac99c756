"""Values of declared types, made from JSON.

str, bool, float, None, int     unchanged; an int has 64 bits
DATA                            one of these, an int of any length
tuple, Mapping                  from a list, from an object
a dataclass                     from the list of its fields
X | None, int | Expr            the first that fits; an Expr from its text
Annotated[T, check]             a T for which `check` does not return False
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from kernelmill.core.dim import Dim, Expr, parse, sym

Make = Callable[[Any], Any]

DATA = bool | int | float | str | None

UNFIT = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors raised for data in a file that is malformed."""

_LARGEST = 1 << 63


def maker(kind: Any, own: Mapping[Any, Make]) -> Make:
    """Return a function that makes values of a type, and raises one of `UNFIT` for others. `own`
    are makers of the types that the caller makes itself."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in own:
        return own[kind]
    if kind is int:
        return _integer
    if kind is Expr:
        return _dim
    if origin is Annotated:
        return _checked(maker(args[0], own), *args[1:])
    if origin is Mapping:
        make = maker(args[1], own)
        return lambda value: {name: make(part) for name, part in of_type(value, dict).items()}
    if origin is tuple and args[-1] is Ellipsis:
        make = maker(args[0], own)
        return lambda rows: tuple([make(row) for row in of_type(rows, list)])
    if origin is tuple or is_dataclass(kind):
        makers = [maker(part, own) for part in args or kept_fields(kind).values()]
        whole: Any = kind if is_dataclass(kind) else lambda *parts: parts
        return lambda row: whole(*made_of(makers, row))
    if origin in (Union, UnionType):
        return _first([maker(part, own) for part in args]) if kind != DATA else _data
    return lambda value: of_type(value, kind)


def kept_fields(kind: Any) -> dict[str, Any]:
    """Return the types of the fields that a dataclass is saved with: those it is compared by."""
    types = get_type_hints(kind, include_extras=True)
    return {each.name: types[each.name] for each in fields(kind) if each.compare}


def of_type(value: Any, *kinds: type) -> Any:
    """Return the value. TypeError where its class is none of these."""
    if type(value) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"expected {names}, and there is {value!r:.60}")
    return value


def made_of(makers: Sequence[Make], row: Any) -> list[Any]:
    """Return the values made from the parts of a list, which has as many parts as makers."""
    return [make(part) for make, part in zip(makers, of_type(row, list), strict=True)]


def _first(makers: Sequence[Make]) -> Make:
    def made(value: Any) -> Any:
        for make in makers[:-1]:
            try:
                return make(value)
            except TypeError:
                continue
        return makers[-1](value)

    return made


def _checked(make: Make, check: Callable[[Any], Any]) -> Make:
    def made(value: Any) -> Any:
        if check(found := make(value)) is False:
            raise ValueError(f"there cannot be {value!r:.60}")
        return found

    return made


def _data(value: Any) -> Any:
    return of_type(value, bool, int, float, str, NoneType)


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected int, and there is {value!r:.60}")
    if not -_LARGEST <= value < _LARGEST:
        raise ValueError(f"out of range: {value!r:.40}")
    return value


def _dim(value: Any) -> Dim:
    names = re.findall(r"[^\W\d]\w*", of_type(value, str))
    return parse(value, {name: sym(name) for name in names})

"""Whether what a trace read besides the contents of tensors is still so; see `Guard`."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernelmill.artifact.fingerprint import (
    class_text,
    fingerprint,
    is_atom,
    keys_of,
    name_of,
    shape_of,
)
from kernelmill.artifact.manifest import Guard
from kernelmill.artifact.paths import MISSING, Path, Roots, follow, name_of_argument, text_of

Classes = dict[type, str]
"""Texts of classes that were made already."""


def found_now(guard: Guard, roots: Roots, names: frozenset[str] = frozenset()) -> str:
    """What is there now. MissingPath when there is nothing."""
    other = follow(guard.other, roots) if guard.kind == "same" else None
    return seen(guard, follow(guard.path, roots), other, names, {})


def seen(guard: Guard, value: Any, other: Any, names: frozenset[str], classes: Classes) -> str:
    """What these values at `path` and `other` are, as text to compare with `found`."""
    if guard.kind == "class":
        kind: type = type(value)
        if kind not in classes:
            classes[kind] = class_text(kind, names)
        return classes[kind]
    if guard.kind == "absent":
        return str(guard.name not in getattr(value, "__dict__", {}))
    if guard.kind == "contains":
        return str(guard.name in value)
    if guard.kind == "has":
        return str(hasattr(value, guard.name))
    if guard.kind == "same":
        return str(value is other)
    return _TEXTS[guard.kind](value)


_TEXTS = {
    "value": fingerprint,
    "type": lambda value: name_of(type(value)),
    "shape": shape_of,
    "keys": keys_of,
}


def found_in(kind: str, value: Any) -> str:
    """What a read of a "value", "type", "shape" or "keys" finds in a value."""
    return _TEXTS[kind](value)


def changes(reads: Iterable[Guard], values: Sequence[Any], names: frozenset[str]) -> Iterator[str]:
    """What is not as it was found, in words; `values` are those of the tree."""
    classes: Classes = {}
    for guard in reads:
        other = values[guard.other_place] if guard.other else None
        if differs := _difference(guard, values[guard.place], other, names, classes):
            yield differs


def _difference(
    guard: Guard, value: Any, other: Any, names: frozenset[str], classes: Classes
) -> str:
    if value is MISSING or other is MISSING:
        return f"{in_words(guard.path if value is MISSING else guard.other)} is not there"
    try:
        now = seen(guard, value, other, names, classes)
    except TypeError:  # nothing can be in it
        now = name_of(type(value))
    if now == guard.found:
        return ""
    if not guard.of_argument:
        return f"{guard.text()}: was {guard.found}, is {now}"
    wanted, came = (text.replace("builtins.", "")[:_SHOWN] for text in (guard.found, now))
    return f"{in_words(guard.path, guard.name)}: expected {wanted}, got {came}"


_SHOWN = 120


def in_words(path: Path, attribute: str = "") -> str:
    """What is at a path, for the one who calls."""
    if path[0][0] != "argument":
        return text_of(path)
    return f"argument '{name_of_argument(path)}{attribute and f'.{attribute}'}'"


class RepeatedChecks:
    """Guards of arguments, compared at each call.

    What was seen to be right is recognised the next time: data and functions by their identity,
    classes, lengths and keys.
    """

    def __init__(
        self, guards: Iterable[Guard], numbers: Mapping[int, int], names: frozenset[str]
    ) -> None:
        """`numbers` has, for places, where their values stand among those to look at."""
        other = numbers.get
        self._guards = [
            (each, numbers[each.place], other(each.other_place, -1), _SIGNS.get(each.kind))
            for each in guards
        ]
        self._names = names
        self._right: list[Any] = [self] * len(self._guards)  # which is no sign

    def difference(self, values: Sequence[Any]) -> str:
        """The first that does not find what it found in the trace, in words; "" when all do."""
        for n, (guard, number, other, sign_of) in enumerate(self._guards):
            value, sign = values[number], None
            if sign_of is not None:
                sign, right = sign_of(value), self._right[n]
                if sign is right or (type(sign) is tuple and sign == right):
                    continue
            other = None if other < 0 else values[other]
            if differs := _difference(guard, value, other, self._names, {}):
                return differs
            self._right[n] = sign
        return ""


def _layout(value: Any) -> Any:
    size = len(value) if hasattr(value, "__len__") else 0
    return "layout", type(value), list(value) if isinstance(value, dict) else size


def _identity(value: Any) -> Any:
    return value if lasts(value) else object()


def lasts(value: object) -> bool:
    """Whether the same object is the same value later: data, a class, a function."""
    kinds = (type, types.FunctionType, types.BuiltinFunctionType)
    return is_atom(value) or isinstance(value, kinds)


_SIGNS: Mapping[str, Callable[[Any], Any]] = {
    "value": _identity, "class": type, "type": type, "shape": _layout, "keys": _layout,
}  # fmt: skip
"""What tells values apart for each kind, compared by identity, or as a tuple of signs."""

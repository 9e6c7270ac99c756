"""The checks of arguments that the native entry does not make: everything that is no tensor."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kernelmill.artifact.fingerprint import (
    class_text,
    fingerprint,
    is_atom,
    keys_of,
    name_of,
    shape_of,
)
from kernelmill.artifact.manifest import Read
from kernelmill.artifact.paths import Path, name_of_argument, step_into
from kernelmill.artifact.reads import difference, seen

Values = Sequence[Any]
Get = Callable[[Values], Any]
Check = Callable[[Values], bool]


def getter(path: Path, parameters: Sequence[str]) -> Get:
    """Finds the value at a path from the values of the function's parameters."""
    number = parameters.index(path[0][1])
    get: Get = lambda values: values[number]  # noqa: E731  # one of a chain
    for step in path[1:]:
        get = _then(get, step)
    return get


def _then(get: Get, step: Sequence[Any]) -> Get:
    kind, *names = step
    if kind == "attribute":
        name = names[0]
        return lambda values: getattr(get(values), name)
    if kind == "item":
        key = names[0]
        return lambda values: get(values)[key]
    return lambda values: step_into(get(values), step)


def check_of(read: Read, parameters: Sequence[str], names: frozenset[str]) -> Check:
    """Whether a read of an argument finds in a call what it found in the trace.

    What was seen to be right is recognised by its identity the next time.
    """
    get, found = getter(read.path, parameters), read.found
    if read.kind == "value":
        return _value_check(get, found)
    if read.kind in ("class", "type"):
        text = partial(class_text, names=names) if read.kind == "class" else name_of
        return _class_check(get, found, text)
    if read.kind in ("shape", "keys"):
        return _shape_check(get, found, shape_of if read.kind == "shape" else keys_of)
    other: Get = getter(read.other, parameters) if read.other else lambda values: None
    return lambda values: seen(read, get(values), other(values), names, {}) == found


def refusal(read: Read, values: Values, parameters: Sequence[str], names: frozenset[str]) -> str:
    """Why these values do not pass the check of a read, in words."""
    try:
        value = getter(read.path, parameters)(values)
        other = getter(read.other, parameters)(values) if read.other else None
        return difference(read, seen(read, value, other, names, {}))
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        return f"argument {name_of_argument(read.path)!r} is built otherwise ({error!r})"


_LASTING = (type, types.FunctionType, types.BuiltinFunctionType)


def _value_check(get: Get, found: str) -> Check:
    known: Any = get  # nobody passes that

    def check(values: Values) -> bool:
        nonlocal known
        value = get(values)
        if value is known:
            return True
        if fingerprint(value) != found:
            return False
        if is_atom(value) or isinstance(value, _LASTING):
            known = value
        return True

    return check


def _class_check(get: Get, found: str, text: Callable[[type], str]) -> Check:
    known: type | None = None

    def check(values: Values) -> bool:
        nonlocal known
        kind = type(get(values))
        if kind is known:
            return True
        if text(kind) != found:
            return False
        known = kind
        return True

    return check


def _shape_check(get: Get, found: str, text: Callable[[Any], str]) -> Check:
    known: tuple[type, Any] | None = None

    def check(values: Values) -> bool:
        nonlocal known
        value = get(values)
        now = type(value), list(value) if isinstance(value, dict) else len(value)
        if now == known:
            return True
        if text(value) != found:
            return False
        known = now
        return True

    return check

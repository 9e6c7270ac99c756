"""The checks of arguments that the native entry does not make: everything that is no tensor."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from kernelmill.artifact.fingerprint import class_text, fingerprint, is_atom, shape_of
from kernelmill.artifact.paths import Path, step_into
from kernelmill.artifact.reads import Read

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
    get = getter(read.path, parameters)
    found, name = read.found, read.name
    if read.kind == "value":
        return _value_check(get, found)
    if read.kind == "class":
        return _class_check(get, found, names)
    if read.kind == "shape":
        return _shape_check(get, found)
    if read.kind == "absent":
        return lambda values: str(name not in getattr(get(values), "__dict__", {})) == found
    if read.kind == "contains":
        return lambda values: str(name in get(values)) == found
    if read.kind == "has":
        return lambda values: str(hasattr(get(values), name)) == found
    other = getter(read.other, parameters)
    return lambda values: str(get(values) is other(values)) == found


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


def _class_check(get: Get, found: str, names: frozenset[str]) -> Check:
    known: type | None = None

    def check(values: Values) -> bool:
        nonlocal known
        kind = type(get(values))
        if kind is known:
            return True
        if class_text(kind, names) != found:
            return False
        known = kind
        return True

    return check


def _shape_check(get: Get, found: str) -> Check:
    known: tuple[type, Any] | None = None

    def check(values: Values) -> bool:
        nonlocal known
        value = get(values)
        now = type(value), list(value) if isinstance(value, dict) else len(value)
        if now == known:
            return True
        if shape_of(value) != found:
            return False
        known = now
        return True

    return check

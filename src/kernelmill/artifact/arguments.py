"""The checks of arguments that the native entry does not make: everything that is no tensor."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelmill.artifact.fingerprint import is_atom
from kernelmill.artifact.guards import difference, seen
from kernelmill.artifact.manifest import Guard
from kernelmill.artifact.paths import Path, name_of_argument, step_into

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


def check_of(guard: Guard, parameters: Sequence[str], names: frozenset[str]) -> Check:
    """Whether a guard of an argument finds in a call what it found in the trace.

    What was seen to be right is recognised the next time: data and functions by their identity,
    classes, lengths and keys.
    """
    get, found = getter(guard.path, parameters), guard.found
    other: Get = getter(guard.other, parameters) if guard.other else lambda values: None
    sign_of = _SIGNS.get(guard.kind)
    if sign_of is None:
        return lambda values: seen(guard, get(values), other(values), names, {}) == found
    known: Any = get  # which is no sign

    def check(values: Values) -> bool:
        nonlocal known
        value = get(values)
        sign = sign_of(value)
        if sign is known or (type(sign) is tuple and sign == known):
            return True
        if seen(guard, value, None, names, {}) != found:
            return False
        known = sign
        return True

    return check


def _layout(value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else len(value)
    return "layout", type(value), keys


def _identity(value: Any) -> Any:
    return value if is_atom(value) or isinstance(value, _LASTING) else object()


_LASTING = (type, types.FunctionType, types.BuiltinFunctionType)
_SIGNS: Mapping[str, Callable[[Any], Any]] = {
    "value": _identity, "class": type, "type": type, "shape": _layout, "keys": _layout,
}  # fmt: skip
"""What tells values apart for each kind, compared by identity, or as a tuple of signs."""


def refusal(guard: Guard, values: Values, parameters: Sequence[str], names: frozenset[str]) -> str:
    """Why these values do not pass the check of a read, in words."""
    try:
        value = getter(guard.path, parameters)(values)
        other = getter(guard.other, parameters)(values) if guard.other else None
        return difference(guard, seen(guard, value, other, names, {}))
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        return f"argument {name_of_argument(guard.path)!r} is built otherwise ({error!r})"

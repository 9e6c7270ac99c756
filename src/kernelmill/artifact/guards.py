"""Whether what a trace read besides the contents of tensors is still so; see `Guard`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kernelmill.artifact.fingerprint import class_text, fingerprint, keys_of, name_of, shape_of
from kernelmill.artifact.manifest import Guard
from kernelmill.artifact.paths import MISSING, Roots, follow, name_of_argument, text_of

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
        value, other = values[guard.place], values[guard.other_place] if guard.other else None
        if value is MISSING or other is MISSING:
            yield f"{text_of(guard.path if value is MISSING else guard.other)} is not there"
            continue
        now = seen(guard, value, other, names, classes)
        if now != guard.found:
            yield difference(guard, now)


def difference(guard: Guard, now: str) -> str:
    """What is not as it was found, in words."""
    if not guard.of_argument:
        return f"{guard.text()}: was {guard.found}, is {now}"
    name = f".{guard.name}" if guard.name else ""
    place = f"argument '{name_of_argument(guard.path)}{name}'"
    wanted, came = (text.replace("builtins.", "")[:_SHOWN] for text in (guard.found, now))
    return f"{place}: expected {wanted}, got {came}"


_SHOWN = 120

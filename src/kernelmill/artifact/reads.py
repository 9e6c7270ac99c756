"""Whether what a trace read besides the contents of tensors is still so; see `Read`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kernelmill.artifact.fingerprint import class_text, fingerprint, keys_of, name_of, shape_of
from kernelmill.artifact.manifest import Read
from kernelmill.artifact.paths import GONE, Roots, follow, name_of_argument, text_of

Classes = dict[type, str]
"""Texts of classes that were made already."""


def found_now(read: Read, roots: Roots, names: frozenset[str] = frozenset()) -> str:
    """What is there now. Gone when there is nothing."""
    other = follow(read.other, roots) if read.kind == "same" else None
    return seen(read, follow(read.path, roots), other, names, {})


def seen(read: Read, value: Any, other: Any, names: frozenset[str], classes: Classes) -> str:
    """What these values at `path` and `other` are, as text to compare with `found`."""
    if read.kind == "class":
        kind: type = type(value)
        if kind not in classes:
            classes[kind] = class_text(kind, names)
        return classes[kind]
    if read.kind == "absent":
        return str(read.name not in getattr(value, "__dict__", {}))
    if read.kind == "contains":
        return str(read.name in value)
    if read.kind == "has":
        return str(hasattr(value, read.name))
    if read.kind == "same":
        return str(value is other)
    return _TEXTS[read.kind](value)


_TEXTS = {
    "value": fingerprint,
    "type": lambda value: name_of(type(value)),
    "shape": shape_of,
    "keys": keys_of,
}


def found_in(kind: str, value: Any) -> str:
    """What a read of a "value", "type", "shape" or "keys" finds in a value."""
    return _TEXTS[kind](value)


def changes(reads: Iterable[Read], values: Sequence[Any], names: frozenset[str]) -> Iterator[str]:
    """What is not as it was found, in words; `values` are those of the tree."""
    classes: Classes = {}
    for read in reads:
        value, other = values[read.place], values[read.other_place] if read.other else None
        if value is GONE or other is GONE:
            yield f"{text_of(read.path if value is GONE else read.other)} is not there"
            continue
        now = seen(read, value, other, names, classes)
        if now != read.found:
            yield difference(read, now)


def difference(read: Read, now: str) -> str:
    """What is not as it was found, in words."""
    if not read.of_argument:
        return f"{read.text()}: was {read.found}, is {now}"
    name = f".{read.name}" if read.name else ""
    place = f"argument '{name_of_argument(read.path)}{name}'"
    wanted, came = (text.replace("builtins.", "")[:_SHOWN] for text in (read.found, now))
    return f"{place}: expected {wanted}, got {came}"


_SHOWN = 120

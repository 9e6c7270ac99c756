"""Attributes of a class's objects, found without making one."""

from __future__ import annotations

from types import CodeType
from typing import Any


def names_in(function: Any) -> frozenset[str]:
    """Return names of globals and attributes in a Python function, inner functions too."""
    found: set[str] = set()
    codes: list[CodeType] = [function.__code__]
    while codes:
        code = codes.pop()
        found.update(code.co_names)
        codes += [value for value in code.co_consts if isinstance(value, CodeType)]
    return frozenset(found)


def lacking(kind: type, *names: str) -> list[str]:
    """Return the names that are neither attributes of a class nor set by its `__init__`s."""
    known = set(dir(kind)) | set(getattr(kind, "__dataclass_fields__", ()))
    for part in kind.__mro__:
        for maker in ("__init__", "__post_init__"):
            function = vars(part).get(maker)
            if hasattr(function, "__code__"):
                known |= names_in(function)
    return [name for name in names if name not in known]


def check(kind: type, *names: str) -> None:
    """Raise AttributeError for the first name that objects of the class do not have."""
    for name in lacking(kind, *names):
        raise AttributeError(f"{kind.__name__} has no {name}")

"""The table of ATen operators that have a translation into graph operators.

A translator is a function `(e: Emitter, *args, **kwargs)` with the operator's own arguments,
tensors as graph values and sizes as dims. It returns the value, or for several results the sequence
of values, of the operator's result, or raises `NotTranslated` to leave it to ATen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Translator = Callable[..., Any]
F = TypeVar("F", bound=Translator)

TRANSLATORS: dict[Any, Translator] = {}
"""Translators by overload (`torch.ops.aten.add.Tensor`), or by packet for all its overloads."""


class NotTranslated(Exception):
    """A use of an operator that is left to ATen; the message is the reason given in reports."""


def translates(*names: str) -> Callable[[F], F]:
    """Register a translator: "add.Tensor", "relu" (every overload), "prims.iota.default"."""

    def register(function: F) -> F:
        for name in names:
            TRANSLATORS[_operator(name)] = function
        return function

    return register


FOREIGN: dict[str, Translator] = {}
"""Translators by name, for optional libraries ("transformers.grouped_mm_fallback")."""


def translates_foreign(name: str) -> Callable[[F], F]:
    """Register a translator of another library's operator, all of its overloads."""

    def register(function: F) -> F:
        FOREIGN[name] = function
        return function

    return register


def _operator(name: str) -> Any:
    parts = name.split(".")
    if parts[0] not in ("aten", "prims"):
        parts.insert(0, "aten")
    found: Any = torch.ops
    for part in parts:
        found = getattr(found, part)
    return found


def translator_of(operator: Any) -> Translator | None:
    """Return the translator of an operator overload, or None."""
    found = TRANSLATORS.get(operator)
    if found is None:
        found = TRANSLATORS.get(getattr(operator, "overloadpacket", None))
    return FOREIGN.get(str(getattr(operator, "overloadpacket", ""))) if found is None else found

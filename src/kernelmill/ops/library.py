"""The torch library `kernelmill`: its operators are made of ATen operators.

Each is registered as a composite, so one formula serves them all: eager runs it, FakeTensor and
torch.export shape it, autograd differentiates it, and a compiler sees its parts and fuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from kernelmill.core.errors import InputError

F = TypeVar("F", bound=Callable[..., object])

LIBRARY = torch.library.Library("kernelmill", "DEF")
NAMES: list[str] = []
"""Names of the registered operators, one for each overload."""


def operator(schema: str) -> Callable[[F], F]:
    """Register a function as the operator with this schema."""

    def register(formula: F) -> F:
        name = schema.partition("(")[0]
        NAMES.append(name)
        LIBRARY.define(schema)
        LIBRARY.impl(name, formula, "CompositeImplicitAutograd")
        return formula

    return register


def require(holds: bool, message: str) -> None:
    """Raise InputError with this message unless `holds`."""
    if not holds:
        raise InputError(message)

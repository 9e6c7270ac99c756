"""The torch library `kernelmill`, whose operators consist of ATen operators.

Each is registered as a composite, so one formula is enough: eager runs it, FakeTensor and
torch.export infer its shapes, autograd differentiates it, and a compiler fuses its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

import torch
from torch.library import infer_schema

from kernelmill.core.errors import InputError

F = TypeVar("F", bound=Callable[..., object])

LIBRARY = torch.library.Library("kernelmill", "DEF")
NAMES: list[str] = []
"""Names of the registered operators, one for each overload."""


def operator(schema: str) -> Callable[[F], F]:
    """Register a function as the operator with this schema; for a name alone, with that of its
    signature, and as one that writes to no argument."""

    def register(formula: F) -> F:
        name, full, _ = schema.partition("(")
        NAMES.append(name)
        LIBRARY.define(schema if full else infer_schema(formula, mutates_args=(), op_name=name))
        LIBRARY.impl(name, formula, "CompositeImplicitAutograd")
        return formula

    return register


def public(formula: F) -> F:
    """Return a function that calls the operator of this name, with the signature of its formula."""
    packet = getattr(torch.ops.kernelmill, formula.__name__)

    @wraps(formula)
    def call(*args: object, **given: object) -> object:
        return packet(*args, **given)

    return cast("F", call)


def require(holds: bool, message: str) -> None:
    """Raise InputError with this message unless `holds`."""
    if not holds:
        raise InputError(message)

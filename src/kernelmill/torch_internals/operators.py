"""Operators of torch: their class, their schemas, and those whose names begin with "_"."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import fx

from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.registry import internal

_torch: Any = torch
OpOverload: Any = type(torch.ops.aten.add.Tensor)
"""The class of operator overloads."""


@internal(
    "operators.schema",
    reason="knowing whether an operator writes to its arguments, or gives views of them",
    fallback="asked of torch.fx, which takes some microseconds for each operator",
)
def _schema() -> str | None:
    name = "_schema"
    adds = [getattr(torch.ops.aten.add_, o) for o in ("Tensor", "Scalar")]
    views = torch.ops.aten.view.default
    right = all(getattr(add, name).is_mutable for add in adds)
    (returned,) = getattr(views, name).returns
    return name if right and returned.alias_info is not None else None


def schema_of(overload: Any) -> Any:
    """The schema of an operator overload. UnsupportedError where torch shows none."""
    name = _schema.get()
    if name is not None:
        return getattr(overload, name)
    from torch.fx.operator_schemas import get_signature_for_torch_op

    _, schemas = get_signature_for_torch_op(overload, return_schemas=True)
    if not schemas:
        raise UnsupportedError(f"{overload} has no schema")
    return schemas[0]


@cache
def gives_views(target: str) -> bool:
    """Whether results of "namespace.name.overload" are, or may be, views of its first operand, as
    its schema says. False for an operator that this torch doesn't have."""
    found = overload_named(target)
    if not isinstance(found, OpOverload):
        return False
    return any(r.alias_info is not None for r in schema_of(found).returns)


def overload_named(name: str) -> Any:
    """The overload "namespace.name.overload" below torch.ops; None where this torch lacks it.
    What is below a namespace of higher-order operators has no overload."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def name_of_operator(found: Any) -> str | None:
    """The name of an overload, "namespace.name.overload", or of a higher-order operator,
    "higher_order.name", by which `overload_named` finds it; None for anything else."""
    if isinstance(found, OpOverload):
        return str(found)
    name = f"higher_order.{getattr(found, '__name__', '')}"
    return name if callable(found) and overload_named(name) is found else None


def packets_named(*names: str) -> tuple[Any, ...]:
    """The operators "namespace.name" that this torch has."""
    found = (overload_named(name) for name in names)
    return tuple(packet for packet in found if packet is not None)


def writes(target: str) -> bool:
    """Whether "namespace.name.overload", an operator of this torch, writes to an argument."""
    return bool(schema_of(overload_named(target)).is_mutable)


@internal(
    "operators.composite",
    reason="taking apart those operators of an exported program that torch always takes apart",
    fallback="all operators that torch's default table for export has are taken apart, and "
    "methods that call custom operators are not kept",
)
def _composite_key() -> Any:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    asked: Any = torch.ops.aten
    reshape, add = asked.reshape.default, asked.add.Tensor
    right = reshape.has_kernel_for_dispatch_key(key) and not add.has_kernel_for_dispatch_key(key)
    return key if right else None


def is_composite(overload: Any) -> bool:
    """Whether torch has nothing for an operator but the operators it is made of, or (see the
    fallback) that cannot be told."""
    key = _composite_key.get()
    return key is None or overload.has_kernel_for_dispatch_key(key)


def make_token(graph: fx.Graph) -> fx.Node:
    """A node for an empty effect token. UnsupportedError where torch has none such."""
    operator = overload_named("prims._make_token.default")
    if operator is None:
        raise UnsupportedError("it has effects, whose tokens this torch does not make")
    return graph.call_function(operator)

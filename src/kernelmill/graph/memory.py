"""In whose memory a value lies: what ATen calls give may be views of what they read."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from kernelmill.graph.ir import Value
from kernelmill.torch_internals.operators import OpOverload, schema_of


def memory_of(value: Value) -> Value:
    """The input or the computed value whose memory a value lies in: itself, except for ATen's
    views, which share memory with their first operand."""
    while (
        value.node is not None
        and value.node.op == "aten"
        and value.node.operands
        and gives_views(str(value.node.attrs["target"]))
    ):
        value = value.node.operands[0]
    return value


@cache
def gives_views(target: str) -> bool:
    """Whether results of "namespace.name.overload" are, or may be, views of its first operand, as
    its schema says. False for an operator that this torch doesn't have."""
    found: Any = torch.ops
    for part in target.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, OpOverload):
        return False
    return any(r.alias_info is not None for r in schema_of(found).returns)

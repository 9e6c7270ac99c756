"""Owners of the memory of values: results of ATen calls may be views of their operands."""

from __future__ import annotations

from kernelmill.graph.ir import Value
from kernelmill.torch_internals.operators import gives_views


def memory_of(value: Value) -> Value:
    """Return the input or computed value whose memory a value has: itself, except for ATen's views,
    which share memory with their first operand."""
    while (
        value.node is not None
        and value.node.op == "aten"
        and value.node.operands
        and gives_views(str(value.node.attrs["target"]))
    ):
        value = value.node.operands[0]
    return value

"""Removes arithmetic that changes nothing: x * 1, x / 1, casts there and back."""

from __future__ import annotations

import math

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import DType
from kernelmill.graph.builder import Rewriter, rewritten
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.ops import OPS

_EXACT_BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
_WHOLE_BITS = {"i64": 63, "i32": 31, "i16": 15, "i8": 7, "u8": 8, "bool": 1}


@dataclass(frozen=True)
class RemoveIdentities:
    """Bit for bit: x + 0.0 stays (it turns -0.0 into 0.0), x - 0.0 and x * 1 go."""

    name: str = "remove-identities"

    def apply(self, graph: Graph) -> Graph:
        return rewritten(graph, _same)


def _same(rewriter: Rewriter, node: Node) -> Value | None:
    """Return a value of the new graph that equals the node's result, or None."""
    operands = rewriter.operands(node)
    if node.op == "cast":
        return _cast(rewriter, node, operands[0])
    if node.op == "where":
        return _where(operands)
    if len(operands) != 2:
        return None
    left, right = (_constant(operand) for operand in operands)
    if right is not None and _neutral(node.op, right, operands[0].dtype):
        return operands[0]
    if OPS[node.op].commutative and left is not None and _neutral(node.op, left, operands[1].dtype):
        return operands[1]
    return None


def _constant(value: Value) -> bool | int | float | None:
    """Return the number in every element of a value, looking through expands and reshapes."""
    number = value.behind("expand", "reshape").number
    assert number is None or isinstance(number, (bool, int, float))
    return number


def _neutral(op: str, number: bool | int | float, dtype: DType) -> bool:
    if op in ("mul", "div", "pow"):
        return number == 1 and dtype.name != "bool"
    if op == "sub":
        return number == 0 and math.copysign(1, number) > 0
    if op == "add":
        return number == 0 and (not dtype.is_float or math.copysign(1, number) < 0)
    if op in ("bit_or", "bit_xor"):
        return number == 0
    return op == "bit_and" and number is True


def _where(operands: tuple[Value, ...]) -> Value | None:
    condition, a, b = operands
    known = _constant(condition)
    if a is b:
        return a
    return None if known is None else (a if known else b)


def _cast(rewriter: Rewriter, node: Node, x: Value) -> Value | None:
    """Rewrite cast(cast(x, wide), narrow) as cast(x, narrow) if `wide` holds all of x's values."""
    dtype = node.result.dtype
    if x.dtype == dtype:
        return x
    inner = x.node
    if inner is None or inner.op != "cast" or not holds(x.dtype, inner.operands[0].dtype):
        return None
    source = inner.operands[0]
    if source.dtype == dtype:
        return source
    return rewriter.emit(node, "cast", source, dtype=dtype)


def holds(wide: DType, narrow: DType) -> bool:
    """Return whether `wide` holds every value of `narrow`, so that a cast loses nothing."""
    if wide == narrow or narrow.name == "bool":
        return wide.name != "bool" or narrow.name == "bool"
    if narrow.is_float:
        exact = {("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16")}
        return (wide.name, narrow.name) in exact
    bits = _WHOLE_BITS[narrow.name]
    if wide.is_float:
        return bits <= _EXACT_BITS[wide.name]
    signed = wide.kind == "int" or narrow.kind == "uint"
    return wide.is_integer and signed and _WHOLE_BITS[wide.name] >= bits

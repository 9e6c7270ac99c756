"""Pointwise operators of the graph as register operations of the kernel IR.

Registers hold f16 and bf16 values widened to f32 and already rounded to their type. Every operator
rounds its result to the result's dtype, as eager does between two operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kernelmill.core.dtype import BOOL, F32, I16, I32, DType
from kernelmill.graph.ir import Node, OpDef
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value


def constant(b: KernelBuilder, value: object, dtype: DType) -> Value:
    """Return a register that holds the number `value` of this (graph) dtype."""
    if dtype == BOOL:
        return b.op("splat", bool(value), dtype=BOOL, lanes=1)
    number = float(value) if dtype.is_float else int(value)  # type: ignore[arg-type]
    register = b.op("splat", number, dtype=dtype.compute, lanes=1)
    return round_to(b, register, dtype)


def round_to(b: KernelBuilder, register: Value, dtype: DType) -> Value:
    """Round an f32 register to a half type and widen it again; others are unchanged."""
    return b.cast(b.cast(register, dtype), dtype.compute)


def convert(
    b: KernelBuilder, register: Value, source: DType, target: DType, rounded: bool = True
) -> Value:
    """Convert a value of graph dtype `source` to `target` as a torch cast does.

    Unless `rounded`, one of a half type keeps the digits it has in f32.
    """
    if source == target:
        return register
    # To a half type everything goes through f32, as in eager.
    register = b.cast(register, target.compute)
    exact = source.bits <= 8 and not source.is_float
    return register if exact or not rounded else round_to(b, register, target)


def apply(b: KernelBuilder, node: Node, args: list[Value], rounded: bool = True) -> Value:
    """Emit one pointwise node, `rounded` to its type. KeyError for one that has no lowering."""
    source, target = node.operands[-1].dtype, node.result.dtype
    if node.op == "cast":
        return convert(b, args[0], source, target, rounded)
    if node.op == "bitcast":
        raw = b.op("bitcast", b.cast(args[0], source), dtype=target)
        return b.cast(raw, target.compute)
    definition = OPS[node.op]
    if source == BOOL:
        return _on_bool(b, definition, args)
    if node.op == "nextafter" and target.compute != target:
        return _next_half(b, target, *args)
    result = _direct(b, definition, args)
    if target == BOOL or definition.exact or not rounded:
        return result
    return round_to(b, result, target)


def _direct(b: KernelBuilder, definition: OpDef, args: list[Value]) -> Value:
    if definition.kernel_op is None:
        return _OPERATORS[definition.name](b, *args)
    return b.op(definition.kernel_op, *args)


def _on_bool(b: KernelBuilder, definition: OpDef, args: list[Value]) -> Value:
    if definition.kernel_op_bool is not None:
        return b.op(definition.kernel_op_bool, *args)
    composed = _ON_BOOL.get(definition.name)
    return _direct(b, definition, args) if composed is None else composed(b, *args)


def _is_float(register: Value) -> bool:
    return register.type.dtype.is_float


def _sign(b: KernelBuilder, x: Value) -> Value:
    zero = b.op("splat", 0, dtype=x.type.dtype, lanes=1)
    one = b.op("splat", 1, dtype=x.type.dtype, lanes=1)
    positive = b.op("select", b.op("gt", x, zero), one, zero)
    if x.type.dtype.kind == "uint":
        return positive
    minus = b.op("splat", -1, dtype=x.type.dtype, lanes=1)
    return b.op("select", b.op("lt", x, zero), minus, positive)


def _reciprocal(b: KernelBuilder, x: Value) -> Value:
    return b.op("div", b.op("splat", 1.0, dtype=x.type.dtype, lanes=1), x)


def _isinf(b: KernelBuilder, x: Value) -> Value:
    if not _is_float(x):
        return b.op("ne", x, x)
    return b.op("eq", b.op("abs", x), float("inf"))


def _logical_not(b: KernelBuilder, x: Value) -> Value:
    return b.op("eq", x, 0.0 if _is_float(x) else 0)


def _mod(b: KernelBuilder, x: Value, y: Value) -> Value:
    rest = b.op("rem", x, y)
    return b.op("select", _differ(b, rest, y), b.op("add", rest, y), rest)


def _differ(b: KernelBuilder, rest: Value, divisor: Value) -> Value:
    """Emit whether rest != 0 with another sign than the divisor: floor and truncation differ."""
    zero = 0.0 if _is_float(rest) else 0
    nonzero = b.op("ne", rest, zero)
    if rest.type.dtype.kind == "uint":
        return b.op("xor", nonzero, nonzero)
    signs = b.op("xor", b.op("lt", rest, zero), b.op("lt", divisor, zero))
    return b.op("and", nonzero, signs)


def _floordiv(b: KernelBuilder, x: Value, y: Value) -> Value:
    if not _is_float(x):
        quotient = b.op("div", x, y)
        rest = b.op("sub", x, b.op("mul", quotient, y))
        below = b.op("and", _differ(b, rest, y), b.op("ne", y, 0))
        return b.op("select", below, b.op("sub", quotient, 1), quotient)
    # Python's float floor division: exact remainder first, then round what is nearly an integer.
    rest = b.op("rem", x, y)
    quotient = b.op("div", b.op("sub", x, rest), y)
    quotient = b.op("select", _differ(b, rest, y), b.op("sub", quotient, 1.0), quotient)
    floor = b.op("floor", quotient)
    floor = b.op(
        "select", b.op("gt", b.op("sub", quotient, floor), 0.5), b.op("add", floor, 1.0), floor
    )
    true_quotient = b.op("div", x, y)
    signed_zero = b.op("copysign", b.op("splat", 0.0, dtype=x.type.dtype, lanes=1), true_quotient)
    result = b.op("select", b.op("eq", quotient, 0.0), signed_zero, floor)
    return b.op("select", b.op("eq", y, 0.0), true_quotient, result)


def _next_half(b: KernelBuilder, dtype: DType, x: Value, y: Value) -> Value:
    """The neighbour of `x` towards `y` among the numbers of a half type: the one whose bits as an
    integer are one apart."""

    def bits(register: Value) -> Value:
        return b.op("bitcast", b.cast(register, dtype), dtype=I16)

    away = b.op("xor", b.op("lt", x, y), b.op("lt", x, 0.0))
    one, minus = (b.op("splat", step, dtype=I16, lanes=1) for step in (1, -1))
    moved = b.op("add", bits(x), b.op("select", away, one, minus))
    smallest = b.op("or", b.op("and", bits(y), -(2**15)), 1)
    moved = b.op("select", b.op("eq", x, 0.0), smallest, moved)
    moved = b.op("select", b.op("eq", x, y), bits(y), moved)
    moved = b.cast(b.op("bitcast", moved, dtype=dtype), F32)
    unordered = b.op("or", b.op("ne", x, x), b.op("ne", y, y))
    return b.op("select", unordered, b.op("add", x, y), moved)


def floor_integer(b: KernelBuilder, kind: str, x: Value, y: Value) -> Value:
    """Emit floor division ("div") or modulo ("mod") of signed integer registers."""
    return _mod(b, x, y) if kind == "mod" else _floordiv(b, x, y)


def _bool_compare(op: str, b: KernelBuilder, x: Value, y: Value) -> Value:
    return b.op(op, b.op("cast", x, dtype=I32), b.op("cast", y, dtype=I32))


_OPERATORS: dict[str, Callable[..., Value]] = {
    "sign": _sign,
    "reciprocal": _reciprocal,
    "isnan": lambda b, x: b.op("ne", x, x),
    "isinf": _isinf,
    "logical_not": _logical_not,
    "mod": _mod,
    "floordiv": _floordiv,
}
"""Operators that take several operations."""

_ON_BOOL: dict[str, Callable[..., Value]] = {
    "eq": lambda b, x, y: b.op("not", b.op("xor", x, y)),
    "isnan": lambda b, x: b.op("xor", x, x),
    "isinf": lambda b, x: b.op("xor", x, x),
    "abs": lambda b, x: x,
    "sign": lambda b, x: x,
    **{name: partial(_bool_compare, name) for name in ("lt", "le", "gt", "ge")},
}

"""Arithmetic on bytes done in i32, where a vector of them is widened on its way to floats anyhow.

The numbers are the same. Nibbles of one byte then share its widening, and no shift of bytes has to
be made of one of 16 bits.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import I8, I32, U8, DType
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.graph.ops import OPS

_RANGES = {I8: (-128, 127), U8: (0, 255)}


@dataclass(frozen=True)
class _Wide:
    """A value in i32, and the bounds of its elements."""

    value: Value
    low: int
    high: int


def widened(weight: Value, inside: AbstractSet[Value]) -> Value:
    """Return the weight with its computations of bytes `inside` in i32."""
    return _Widening(inside).plain(weight)


def bytes_in_i32(value: Value, inside: AbstractSet[Value]) -> tuple[Value, int, int] | None:
    """Return bytes computed `inside` in i32, and their bounds; None if `value` is of another
    type."""
    if value.dtype not in _RANGES:
        return None
    wide = _Widening(inside).wide(value)
    return wide.value, wide.low, wide.high


class _Widening:
    def __init__(self, inside: AbstractSet[Value]) -> None:
        self.inside = inside
        self.builder = GraphBuilder("widened")
        self._plain: dict[Value, Value] = {}
        self._wide: dict[Value, _Wide] = {}

    def plain(self, value: Value) -> Value:
        found = self._plain.get(value)
        if found is None:
            found = self._plain[value] = self._make(value)
        return found

    def _make(self, value: Value) -> Value:
        node = value.node
        if node is None or value not in self.inside:
            return value
        if value.dtype in _RANGES:
            return self.builder.emit("cast", self.wide(value).value, dtype=value.dtype)
        if node.op == "cast" and node.operands[0].dtype in _RANGES:
            return self.builder.emit("cast", self.wide(node.operands[0]).value, dtype=value.dtype)
        return self.builder.emit(node.op, *map(self.plain, node.operands), **node.attrs)

    def wide(self, value: Value) -> _Wide:
        """Return the bytes `value` in i32."""
        found = self._wide.get(value)
        if found is None:
            found = self._wide[value] = self._computed(value)
        return found

    def _computed(self, value: Value) -> _Wide:
        node, dtype = value.node, value.dtype
        if node is not None and node.op == "full":
            number = node.attrs["value"]
            assert isinstance(number, int)
            return _Wide(self.builder.emit("full", **{**node.attrs, "dtype": I32}), number, number)
        if node is None or value not in self.inside:
            return _Wide(self.builder.emit("cast", value, dtype=I32), *_RANGES[dtype])
        if any(operand.dtype not in _RANGES for operand in node.operands):
            whole = self.builder.emit(node.op, *map(self.plain, node.operands), **node.attrs)
            return _Wide(self.builder.emit("cast", whole, dtype=I32), *_RANGES[dtype])
        parts = [self.wide(operand) for operand in node.operands]
        if OPS[node.op].transparent:
            made = self.builder.emit(node.op, *(part.value for part in parts), **node.attrs)
            return _Wide(made, min(p.low for p in parts), max(p.high for p in parts))
        if node.op == "cast":
            return self._fitted(parts[0], dtype)
        made = self.builder.emit(node.op, *(part.value for part in parts), **node.attrs)
        return self._fitted(_Wide(made, *_bounds(node, parts)), dtype)

    def _fitted(self, wide: _Wide, dtype: DType) -> _Wide:
        """Reduce to the bits that a byte keeps."""
        low, high = _RANGES[dtype]
        if low <= wide.low and wide.high <= high:
            return wide
        kept = self.builder.emit("cast", wide.value, dtype=dtype)
        return _Wide(self.builder.emit("cast", kept, dtype=I32), low, high)


def _bounds(node: Node, parts: list[_Wide]) -> tuple[int, int]:
    a = parts[0]
    if node.op == "neg":
        return -a.high, -a.low
    b = parts[1]
    if node.op in ("add", "sub"):
        return (a.low + b.low, a.high + b.high) if node.op == "add" else (
            a.low - b.high, a.high - b.low,
        )  # fmt: skip
    if node.op == "mul":
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return min(corners), max(corners)
    if node.op == "bit_and" and min(a.low, b.low) >= 0:
        return 0, min(a.high, b.high)
    if node.op == "shr" and b.low == b.high and 0 <= b.low < 8:
        return a.low >> b.low, a.high >> b.low
    if node.op in ("bit_and", "bit_or", "bit_xor"):
        return _RANGES[node.result.dtype]
    return -(2**31), 2**31 - 1


def factors(weight: Value) -> list[tuple[Value, Value]]:
    """Pairs of values whose product the weight is, before it is rounded: its last operator may be a
    product, under views and casts of floats."""
    node = weight.node
    if node is None:
        return []
    if node.op == "mul" and weight.dtype.is_float:
        first, second = node.operands
        return [(first, second), (second, first)]
    passed = OPS[node.op].transparent or node.op == "cast"
    if len(node.operands) != 1 or not passed or not node.operands[0].dtype.is_float:
        return []
    builder = GraphBuilder("factor")
    return [
        (builder.emit(node.op, a, **node.attrs), builder.emit(node.op, b, **node.attrs))
        for a, b in factors(node.operands[0])
    ]


def made_of(*values: Value) -> frozenset[Value]:
    """Return these values and all that they are computed from."""
    found: set[Value] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending += value.node.operands if value.node is not None else ()
    return frozenset(found)

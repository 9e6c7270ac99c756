"""Four-bit weights with factors for groups along k, as words for products of few rows.

Eight neighbours along k are an i32 word: number 2 * i + h of them has the four bits from
4 * i + 16 * h on. The two numbers of one i are in the two halves of a word, as dot units need it.

Arithmetic on bytes is done in i32 where bytes are widened to floats anyway.

The numbers are the same. Both nibbles of a byte then share its widening, and shifts of bytes need
not be made of 16-bit shifts.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv
from kernelmill.core.dtype import F32, I8, I32, U8, DType
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.weights.panel_views import padded

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


WORD = 8
"""Numbers in a word."""

_MOST = 15


def bit_of(number: int) -> int:
    """Return the lowest bit of one of a word's numbers."""
    return 4 * (number // 2) + 16 * (number % 2)


@dataclass(frozen=True)
class Affine:
    """A weight as `numbers` * `scale` + `offset`, f32 all but the numbers: i32, `low` to `low` + 15
    at most. Each has the weight's shape; a scale of None is 1 everywhere, an offset 0."""

    numbers: Value
    low: int
    scale: Value | None = None
    offset: Value | None = None

    @property
    def factors(self) -> tuple[Value, ...]:
        """Scale and offset, without those that are None."""
        return tuple(value for value in (self.scale, self.offset) if value is not None)


def affine(weight: Value, inside: AbstractSet[Value]) -> Affine | None:
    """A weight that is computed from values of which those between it and its leaves are `inside`,
    where it has that form: by products and sums of floats, under views and casts, of integers that
    have four bits."""
    return _Taking(inside).apart(weight)


class _Taking:
    def __init__(self, inside: AbstractSet[Value]) -> None:
        self.inside = inside
        self.builder = GraphBuilder("affine")

    def apart(self, value: Value) -> Affine | None:
        node = value.node
        if node is None or value not in self.inside or not value.dtype.is_float:
            return None
        if node.op == "cast":
            source = node.operands[0]
            return self.apart(source) if source.dtype.is_float else self._numbers(source)
        if OPS[node.op].transparent and len(node.operands) == 1:
            return self._viewed(value)
        if node.op in ("mul", "add", "sub"):
            return self._joined(node.op, *node.operands)
        return None

    def _numbers(self, source: Value) -> Affine | None:
        found = bytes_in_i32(source, self.inside)
        if found is None or found[2] - found[1] > _MOST:
            return None
        return Affine(found[0], found[1])

    def _viewed(self, value: Value) -> Affine | None:
        node = value.node
        assert node is not None
        parts = None if OPS[node.op].fills else self.apart(node.operands[0])
        if parts is None:
            return None

        def view(part: Value | None) -> Value | None:
            return None if part is None else self.builder.emit(node.op, part, **node.attrs)

        numbers = view(parts.numbers)
        assert numbers is not None
        return Affine(numbers, parts.low, view(parts.scale), view(parts.offset))

    def _joined(self, op: str, a: Value, b: Value) -> Affine | None:
        parts, other = self.apart(a), b
        if parts is None and op != "sub":
            parts, other = self.apart(b), a
        if parts is None:
            return None
        other = other if other.dtype == F32 else self.builder.emit("cast", other, dtype=F32)
        scale, offset = parts.scale, parts.offset
        if op == "mul":
            scale = other if scale is None else self.builder.emit("mul", scale, other)
            offset = None if offset is None else self.builder.emit("mul", offset, other)
        elif offset is not None:
            offset = self.builder.emit(op, offset, other)
        else:
            offset = other if op == "add" else self.builder.emit("neg", other)
        return Affine(parts.numbers, parts.low, scale, offset)


def words_in_panels(rows: Value, low: int, width: int, origin: str) -> Value:
    """Pack numbers (1, n, k) of i32, from `low` on, as words (panels, k / 8, `width`); k is whole
    words. Columns that fill up the last panel have zeros."""
    builder = GraphBuilder("words", origin)
    _, n, k = rows.shape
    panels = ceildiv(n, width)
    if low:
        less = builder.emit("full", value=low, dtype=I32, shape=rows.shape)
        rows = builder.emit("sub", rows, less)
    rows = padded(builder, rows, (1, panels * width, k))
    shape = (panels, width, k // WORD, 1)
    eights = builder.emit("reshape", rows, shape=(*shape[:3], WORD))
    words: Value | None = None
    for number in range(WORD):
        part = builder.emit("slice", eights, dim=3, start=number, end=number + 1, step=1)
        if number:
            bits = builder.emit("full", value=bit_of(number), dtype=I32, shape=shape)
            part = builder.emit("shl", part, bits)
        words = part if words is None else builder.emit("bit_or", words, part)
    assert words is not None
    flat = builder.emit("reshape", words, shape=shape[:3])
    return builder.emit("permute", flat, dims=(0, 2, 1))


def numbers_of(words: Value, low: int, columns: Dim) -> Value:
    """Return the numbers (`columns`, k) of i32 that words in panels are made of; `columns` may be
    fewer than there are."""
    builder = GraphBuilder("numbers")
    panels, count, width = words.shape
    turned = builder.emit("permute", words, dims=(0, 2, 1))
    flat = builder.emit("reshape", turned, shape=(panels * width, count, 1))
    shape = (panels * width, count, WORD)
    spread = builder.emit("expand", flat, shape=shape)

    def full(value: int) -> Value:
        return builder.emit("full", value=value, dtype=I32, shape=shape)

    number = builder.emit("cast", builder.emit("iota", dim=2, shape=shape), dtype=I32)
    odd = builder.emit("shl", builder.emit("bit_and", number, full(1)), full(4))
    even = builder.emit("shl", builder.emit("shr", number, full(1)), full(2))
    bits = builder.emit("shr", spread, builder.emit("bit_or", odd, even))
    found = builder.emit("bit_and", bits, full(_MOST))
    if low:
        found = builder.emit("add", found, full(low))
    whole = builder.emit("reshape", found, shape=(panels * width, count * WORD))
    return builder.emit("slice", whole, dim=0, start=0, end=columns, step=1)

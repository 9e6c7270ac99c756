"""Views as index arithmetic: from an element of a view to its operand and index.

Nothing is emitted here: the element emitter and the fusion analysis both walk views through
`sources`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, floordiv, mod, provably_nonnegative, recombine
from kernelmill.graph.ir import Node, Value

Index = tuple[Dim, ...]


@dataclass(frozen=True)
class ViewSource:
    """The element is `operand[index]` where every one of `conditions` is >= 0."""

    operand: Value
    index: Index
    conditions: tuple[Dim, ...] = ()


def sources(node: Node, index: Index) -> tuple[ViewSource, ...]:
    """Return the operand elements that a view may show at `index`; else it shows `fill`."""
    return _VIEWS[node.op](node, index)


def fill(node: Node) -> Any:
    """Return the value that a pad or window shows where no source holds, else None."""
    return node.attrs.get("value")


def unravel(linear: Dim, shape: Sequence[Dim]) -> Index:
    """Return the row-major index of element number `linear`; zeros where there are no elements."""
    if 0 in shape:
        return (0,) * len(shape)
    result: list[Dim] = []
    for size in reversed(shape[1:]):
        result.append(0 if size == 1 else mod(linear, size))
        linear = floordiv(linear, size)
    if shape:
        result.append(0 if shape[0] == 1 else linear)
    return tuple(reversed(result))


def address(index: Sequence[Dim], strides: Sequence[Dim], offset: Dim = 0) -> Dim:
    """Return the element number of an index in memory."""
    for position, stride in zip(index, strides, strict=True):
        offset = offset + position * stride
    return recombine(offset)


def ravel(index: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    """Return the row-major number of the element at `index`."""
    linear: Dim = 0
    for position, size in zip(index, shape, strict=True):
        linear = linear * size + position
    return recombine(linear)


def reshape_index(index: Sequence[Dim], shape: Sequence[Dim], other: Sequence[Dim]) -> Index:
    """Map an index of `shape` to that of the row-major reshape to `other`.

    Runs of dims with equal products are mapped separately: that needs fewer divisions, and works
    where symbols only cancel within a run. Without elements it is zeros.
    """
    if 0 in shape or 0 in other:
        return (0,) * len(other)
    result: list[Dim] = []
    i = j = 0
    while i < len(shape) or j < len(other):
        start_i, start_j = i, j
        left: Dim = 1
        right: Dim = 1
        if i < len(shape):
            left, i = shape[i], i + 1
        if j < len(other):
            right, j = other[j], j + 1
        while left != right and (i < len(shape) or j < len(other)):
            grow_left = i < len(shape) and (j >= len(other) or _smaller(left, right))
            if grow_left:
                left, i = left * shape[i], i + 1
            else:
                right, j = right * other[j], j + 1
        run, target = shape[start_i:i], other[start_j:j]
        if tuple(run) == tuple(target):
            result.extend(index[start_i:i])
        else:
            result.extend(unravel(ravel(index[start_i:i], run), target))
    return tuple(result)


def _smaller(left: Dim, right: Dim) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    return provably_nonnegative(right - left)


def _expand(node: Node, index: Index) -> tuple[ViewSource, ...]:
    operand = node.operands[0]
    kept = index[len(index) - len(operand.shape) :]
    mapped = tuple(0 if size == 1 else i for size, i in zip(operand.shape, kept, strict=True))
    return (ViewSource(operand, mapped),)


def _permute(node: Node, index: Index) -> tuple[ViewSource, ...]:
    mapped: list[Dim] = [0] * len(index)
    for position, dim in enumerate(_ints(node, "dims")):
        mapped[dim] = index[position]
    return (ViewSource(node.operands[0], tuple(mapped)),)


def _reshape(node: Node, index: Index) -> tuple[ViewSource, ...]:
    operand = node.operands[0]
    return (ViewSource(operand, reshape_index(index, node.result.shape, operand.shape)),)


def _slice(node: Node, index: Index) -> tuple[ViewSource, ...]:
    dim = _int(node, "dim")
    moved = index[dim] * _dim(node, "step") + _dim(node, "start")
    return (ViewSource(node.operands[0], (*index[:dim], moved, *index[dim + 1 :])),)


def _flip(node: Node, index: Index) -> tuple[ViewSource, ...]:
    operand, dims = node.operands[0], _ints(node, "dims")
    mapped = tuple(
        size - 1 - i if d in dims else i
        for d, (i, size) in enumerate(zip(index, operand.shape, strict=True))
    )
    return (ViewSource(operand, mapped),)


def _within(position: Dim, size: Dim) -> tuple[Dim, ...]:
    """Return the conditions for 0 <= position < size, without those that always hold."""
    both = (position, size - 1 - position)
    return tuple(c for c in both if not provably_nonnegative(c))


def _pad(node: Node, index: Index) -> tuple[ViewSource, ...]:
    operand = node.operands[0]
    mapped: list[Dim] = []
    conditions: list[Dim] = []
    for i, low, high, size in zip(
        index, _dims(node, "low"), _dims(node, "high"), operand.shape, strict=True
    ):
        mapped.append(i - low)
        if low != 0 or high != 0:
            conditions += _within(i - low, size)
    return (ViewSource(operand, tuple(mapped), tuple(conditions)),)


def _window(node: Node, index: Index) -> tuple[ViewSource, ...]:
    operand, dims = node.operands[0], _ints(node, "dims")
    mapped = list(index[: len(operand.shape)])
    offsets = index[len(operand.shape) :]
    conditions: list[Dim] = []
    columns = zip(
        dims, offsets, _dims(node, "stride"), _dims(node, "dilation"), _dims(node, "low"),
        _dims(node, "high"), strict=True,
    )  # fmt: skip
    for dim, offset, stride, dilation, low, high in columns:
        mapped[dim] = index[dim] * stride + offset * dilation - low
        if low != 0 or high != 0:
            conditions += _within(mapped[dim], operand.shape[dim])
    return (ViewSource(operand, tuple(mapped), tuple(conditions)),)


def written_over(node: Node) -> Value | None:
    """Return the value of which a concatenation replaces parts: its other operands are slices of
    that value, each in place. None without one."""
    dim = _int(node, "dim")
    return next(
        (base for operand, at in _parts(node) if (base := _kept(node, operand, dim, at))), None
    )


def _parts(node: Node) -> Iterator[tuple[Value, Dim]]:
    """Yield the operands of a concatenation with the start of each."""
    dim = _int(node, "dim")
    start: Dim = 0
    for operand in node.operands:
        yield operand, start
        start = start + operand.shape[dim]


def _kept(node: Node, operand: Value, dim: int, start: Dim) -> Value | None:
    """Return the value of the whole's shape that an operand is a slice of in place, else None."""
    source = operand.node
    if source is None or source.op != "slice":
        return None
    place = _int(source, "dim"), _dim(source, "start"), _dim(source, "step")
    whole = source.operands[0]
    return whole if place == (dim, start, 1) and whole.shape == node.result.shape else None


def _concat(node: Node, index: Index) -> tuple[ViewSource, ...]:
    dim = _int(node, "dim")
    base = written_over(node)
    found: list[ViewSource] = []
    for operand, start in _parts(node):
        if base is not None and _kept(node, operand, dim, start) is base:
            continue
        position = index[dim] - start
        mapped = (*index[:dim], position, *index[dim + 1 :])
        size = operand.shape[dim]
        if not (provably_nonnegative(-1 - position) or provably_nonnegative(position - size)):
            found.append(ViewSource(operand, mapped, _within(position, size)))
    return tuple(found) if base is None else (*found, ViewSource(base, index))


def _as_strided(node: Node, index: Index) -> tuple[ViewSource, ...]:
    operand = node.operands[0]
    linear = _dim(node, "offset")
    for i, stride in zip(index, _dims(node, "strides"), strict=True):
        linear = linear + i * stride
    return (ViewSource(operand, unravel(linear, operand.shape)),)


def _layout(node: Node, index: Index) -> tuple[ViewSource, ...]:
    return (ViewSource(node.operands[0], index),)


def _int(node: Node, name: str) -> int:
    value = node.attrs[name]
    assert isinstance(value, int)
    return value


def _dim(node: Node, name: str) -> Dim:
    value: Any = node.attrs[name]
    return value


def _ints(node: Node, name: str) -> tuple[int, ...]:
    value: Any = node.attrs[name]
    return value


def _dims(node: Node, name: str) -> tuple[Dim, ...]:
    value: Any = node.attrs[name]
    return value


_VIEWS: dict[str, Callable[[Node, Index], tuple[ViewSource, ...]]] = {
    "expand": _expand,
    "permute": _permute,
    "reshape": _reshape,
    "slice": _slice,
    "flip": _flip,
    "pad": _pad,
    "window": _window,
    "concat": _concat,
    "as_strided": _as_strided,
    "layout": _layout,
}

"""Sizes, axes of an iteration domain, and tests of index tuples for one-to-one access."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim, Sym, as_sym, bounds, of_atom, provably_nonnegative, symbols
from kernelmill.graph.ir import Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements.views import Index


def is_view(value: Value) -> bool:
    """Return whether a value only rearranges other values, so that reading it costs nothing."""
    return value.node is not None and OPS[value.node.op].transparent


def viewed(value: Value) -> Value:
    """Return the value that a chain of views of one value starts from."""
    while value.node is not None and is_view(value) and len(value.node.operands) == 1:
        value = value.node.operands[0]
    return value


def is_reduction(node: Node) -> bool:
    """Return whether a node reduces elements along some dims."""
    return OPS[node.op].kind is OpKind.REDUCE


def reduced_dims(node: Node) -> tuple[int, ...]:
    """Return the operand dims that a reduction reduces, ascending."""
    dims = node.attrs["dims"] if "dims" in node.attrs else (node.attrs["dim"],)
    assert isinstance(dims, tuple)
    return tuple(sorted(d for d in dims if isinstance(d, int)))


def operand_index(node: Node, index: Index, inner: Sequence[Sym]) -> Index:
    """Return the index of a reduction's operand: the result's with `inner` at reduced dims."""
    shape = node.operands[0].shape
    reduced = reduced_dims(node)
    kept = iter(index)
    axes = iter(inner)
    return tuple(
        (0 if shape[d] == 1 else of_atom(next(axes))) if d in reduced else next(kept)
        for d in range(len(shape))
    )


def fresh_axes(
    shape: Sequence[Dim], prefix: str, extents: dict[str, Dim]
) -> tuple[list[Sym], Index]:
    """Return a symbol for each dim that is not 1, and the index of these; sizes go to `extents`.

    Their names have a _, which those of a graph's dims have not.
    """
    axes: list[Sym] = []
    index: list[Dim] = []
    for size in shape:
        if size == 1:
            index.append(0)
            continue
        axis = Sym(f"{prefix}_{len(extents)}", 0, size - 1)
        extents[axis.name] = size
        axes.append(axis)
        index.append(of_atom(axis))
    return axes, tuple(index)


def enumerates(
    index: Index, shape: Sequence[Dim], axes: Sequence[Sym], extents: dict[str, Dim]
) -> bool:
    """Return whether `index` visits every element of `shape` exactly once as the axes run."""
    seen: set[str] = set()
    for position, size in zip(index, shape, strict=True):
        if size == 1 and position == 0:
            continue
        axis = as_sym(position)
        if axis is None or axis.name in seen or extents.get(axis.name) != size:
            return False
        seen.add(axis.name)
    return seen == {axis.name for axis in axes}


def in_range(index: Index, shape: Sequence[Dim]) -> bool:
    """Return whether the index is in range wherever the axes are. An element behind a condition (a
    pad, a piece of a concatenation) must not be computed before the condition is known."""
    return all(
        provably_nonnegative(position) and provably_nonnegative(size - 1 - position)
        for position, size in zip(index, shape, strict=True)
    )


def used_axes(index: Index) -> set[str]:
    """Return the names of the symbols in an index."""
    return {name for position in index for name in symbols(position)}


_UNKNOWN_SIZE = 128
"""The assumed value of a symbolic size, within its range."""

Dims = tuple[Dim, ...]


def size_hint(dim: Dim) -> int:
    """Return the size itself, or a likely one for a symbolic size; at least 1."""
    if isinstance(dim, int):
        return max(dim, 1)
    low, high = bounds(dim)
    likely = _UNKNOWN_SIZE if high is None else min(_UNKNOWN_SIZE, high)
    return max(likely, low or 1, 1)


def part_count(count: int, size: int) -> int:
    """Return how many parts of `size` hold `count`, at least 1."""
    return max(1, -(-count // size))


def narrow_lanes(lanes: int, size: Dim) -> int:
    """Return the lanes of vectors along an axis: halved until less than twice a known size."""
    while lanes > 1 and isinstance(size, int) and lanes >= 2 * size:
        lanes //= 2
    return lanes

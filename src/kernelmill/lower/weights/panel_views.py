"""Constant operands of a contraction as views in panels, and in tiles (see `emit/tiles.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value
from kernelmill.lower.elements.axes import fresh_axes, used_axes
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.packed import Rows, panel_shape
from kernelmill.lower.emit.tiles import WORDS, depth_tiles


def panel_view(
    value: Value, at: Callable[[Dims, Dim, Dims], Index], batch: Dims, outer: Dim, k: Dims,
    width: int, group: int, origin: str, each: bool = False,
) -> tuple[Value, Rows | None] | None:  # fmt: skip
    """A constant operand as a view in panel layout, by views alone, and as rows where it is copied
    element by element; None where that cannot be.

    `group` neighbours along k stay side by side, as one element of the panel. Of `each` batch index
    the operand has panels of its own, one after the other; else it must be the same for all.
    """
    builder = GraphBuilder("panels", origin)
    times = product(batch) if each else 1
    depth = product(k)
    groups = ceildiv(depth, group)
    panels, _, _ = panel_shape(outer, groups, width)
    rows = constant_rows(value, at, batch, outer, k, builder, each)
    if rows is None:
        return None
    flat = padded(builder, rows, (times, panels * width, groups * group))
    panels = panels * times
    if group == 1:
        tiles = builder.emit("reshape", flat, shape=(panels, width, depth))
        whole = builder.emit("reshape", rows, shape=(times, outer, depth, 1))
        return builder.emit("permute", tiles, dims=(0, 2, 1)), Rows(whole, width)
    tiles = builder.emit("reshape", flat, shape=(panels, width, groups, group))
    return builder.emit("permute", tiles, dims=(0, 2, 1, 3)), None


def constant_rows(
    value: Value, at: Callable[[Dims, Dim, Dims], Index], batch: Dims, outer: Dim, k: Dims,
    builder: GraphBuilder, each: bool = False,
) -> Value | None:  # fmt: skip
    """A constant operand as a view (times, outer, depth), by views alone; None where that cannot
    be. Of `each` batch index it has rows of its own; else they must be the same for all, once."""
    _, index = fresh_axes((*batch, outer, *k), "x", {})
    first, wanted = index[: len(batch)], index[len(batch) :]
    element = at(first, wanted[0], wanted[1:])
    if not each and used_axes(element) & used_axes(first):
        return None
    order = _permutation(element, (*first, *wanted) if each else wanted, value)
    if order is None:
        return None
    kept = builder.emit("permute", value, dims=order)
    times = product(batch) if each else 1
    return builder.emit("reshape", kept, shape=(times, outer, product(k)))


def padded(builder: GraphBuilder, value: Value, shape: Sequence[Dim]) -> Value:
    """Return a value with zeros behind its elements along each dim, so that it has this shape."""
    missing = tuple(want - have for want, have in zip(shape, value.shape, strict=True))
    if not any(missing):
        return value
    return builder.emit("pad", value, low=(0,) * len(shape), high=missing, value=0)


def _permutation(element: Index, wanted: Sequence[Dim], value: Value) -> tuple[int, ...] | None:
    """Return the order of dims in which the value reads as `wanted`; dims of 1 come first."""
    ones = [d for d, position in enumerate(element) if position == 0]
    order: list[int] = []
    for position in wanted:
        if position == 0:
            continue
        found = [d for d, have in enumerate(element) if have == position]
        if len(found) != 1:
            return None
        order.append(found[0])
    if len(order) + len(ones) != len(value.shape):
        return None
    return (*ones, *order)


At = Callable[[Dims, Dim, Dims], Index]


def tile_view_of_a(
    value: Value, at: At, batch: Dims, outer: Dim, k: Dims, unit: DotUnit, origin: str
) -> Value | None:
    """Rows of A: (row tiles, tiles along k, rows, numbers), zeros where there is nothing; None
    where that cannot be by views alone, or not for all batch indices at once."""
    builder = GraphBuilder("tiles", origin)
    rows = constant_rows(value, at, batch, outer, k, builder)
    if rows is None:
        return None
    down, depth = ceildiv(outer, unit.rows), _depth(k, unit)
    numbers = WORDS * unit.group
    flat = padded(builder, rows, (1, down * unit.rows, depth * numbers))
    tiles = builder.emit("reshape", flat, shape=(down, unit.rows, depth, numbers))
    return builder.emit("permute", tiles, dims=(0, 2, 1, 3))


def tile_view_of_b(
    value: Value, at: At, batch: Dims, outer: Dim, k: Dims, unit: DotUnit, origin: str, each: bool
) -> Value | None:
    """Columns of B: (column tiles, words along k, columns, numbers of a word), those of `each`
    batch index after those of the one before; None as above."""
    builder = GraphBuilder("tiles", origin)
    rows = constant_rows(value, at, batch, outer, k, builder, each)
    if rows is None:
        return None
    times = product(batch) if each else 1
    across, words = ceildiv(outer, unit.columns), _depth(k, unit) * WORDS
    flat = padded(builder, rows, (times, across * unit.columns, words * unit.group))
    shape = (times * across, unit.columns, words, unit.group)
    return builder.emit("permute", builder.emit("reshape", flat, shape=shape), dims=(0, 2, 1, 3))


def _depth(k: Dims, unit: DotUnit) -> Dim:
    return depth_tiles(ceildiv(product(k), unit.group))

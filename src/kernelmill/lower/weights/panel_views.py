"""Constant operands of a contraction as views in panels, and in tiles (see `emit/tiles.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim, ceildiv
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value
from kernelmill.lower.elements.axes import fresh_axes, used_axes
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.access import Matrix
from kernelmill.lower.emit.packed import Rows, panel_shape
from kernelmill.lower.emit.tiles import WORDS, depth_tiles


def panel_view(
    matrix: Matrix, width: int, group: int, origin: str, each: bool = False
) -> tuple[Value, Rows | None] | None:
    """A constant operand as a view in panel layout, by views alone, and as rows where it is copied
    element by element; None where that cannot be.

    `group` neighbours along k stay side by side, as one element of the panel. Of `each` batch index
    the operand has panels of its own, one after the other; else it must be the same for all.
    """
    builder = GraphBuilder("panels", origin)
    times, outer, depth = matrix.count(each), matrix.outer, matrix.depth
    groups = ceildiv(depth, group)
    panels, _, _ = panel_shape(outer, groups, width)
    rows = constant_rows(matrix, builder, each)
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


def constant_rows(matrix: Matrix, builder: GraphBuilder, each: bool = False) -> Value | None:
    """A constant operand as a view (times, outer, depth), by views alone; None where that cannot
    be. Of `each` batch index it has rows of its own; else they must be the same for all, once."""
    value, batch = matrix.value, matrix.batch
    _, index = fresh_axes((*batch, matrix.outer, *matrix.k), "x", {})
    first, wanted = index[: len(batch)], index[len(batch) :]
    element = matrix.at(first, wanted[0], wanted[1:])
    if not each and used_axes(element) & used_axes(first):
        return None
    order = _permutation(element, (*first, *wanted) if each else wanted, value)
    if order is None:
        return None
    kept = builder.emit("permute", value, dims=order)
    return builder.emit("reshape", kept, shape=(matrix.count(each), matrix.outer, matrix.depth))


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


def tile_view_of_a(matrix: Matrix, unit: DotUnit, origin: str) -> Value | None:
    """Rows of A: (row tiles, tiles along k, rows, numbers), zeros where there is nothing; None
    where that cannot be by views alone, or not for all batch indices at once."""
    builder = GraphBuilder("tiles", origin)
    rows = constant_rows(matrix, builder)
    if rows is None:
        return None
    down, depth = ceildiv(matrix.outer, unit.rows), _depth(matrix, unit)
    numbers = WORDS * unit.group
    flat = padded(builder, rows, (1, down * unit.rows, depth * numbers))
    tiles = builder.emit("reshape", flat, shape=(down, unit.rows, depth, numbers))
    return builder.emit("permute", tiles, dims=(0, 2, 1, 3))


def tile_view_of_b(matrix: Matrix, unit: DotUnit, origin: str, each: bool = False) -> Value | None:
    """Columns of B: (column tiles, words along k, columns, numbers of a word), those of `each`
    batch index after those of the one before; None as above."""
    builder = GraphBuilder("tiles", origin)
    rows = constant_rows(matrix, builder, each)
    if rows is None:
        return None
    times = matrix.count(each)
    across, words = ceildiv(matrix.outer, unit.columns), _depth(matrix, unit) * WORDS
    flat = padded(builder, rows, (times, across * unit.columns, words * unit.group))
    shape = (times * across, unit.columns, words, unit.group)
    return builder.emit("permute", builder.emit("reshape", flat, shape=shape), dims=(0, 2, 1, 3))


def _depth(matrix: Matrix, unit: DotUnit) -> Dim:
    return depth_tiles(ceildiv(matrix.depth, unit.group))

"""Constant operands of a contraction as views in tiles (see `emit/tiles.py`)."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dim import Dim, ceildiv, product
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.tiles import WORDS, depth_tiles
from kernelmill.lower.weights.panel_views import constant_rows, padded

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

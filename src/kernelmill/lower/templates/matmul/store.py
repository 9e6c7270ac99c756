"""Hands the sums of a tile to the caller's epilogue."""

from __future__ import annotations

from typing import Any

from kernelmill.core.dim import Dim, ceildiv, minimum, mod
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.templates.matmul.context import ContractionContext


def store_tile(
    context: ContractionContext[Any], row: Dim, column: Dim, sums: Dim, shift: Dim | None = None
) -> None:
    """Store a tile's rows and vectors that are within C, from scratch at `sums`; less a vector for
    each column, at `shift`."""
    spec, schedule, builder = context.spec, context.schedule, context.builder
    first = row * schedule.rows
    rows = at_most(schedule.rows, spec.m, first)
    vectors = at_most(schedule.vectors, ceildiv(spec.n, schedule.lanes), column * schedule.vectors)
    with (
        builder.loop(0, rows, prefix="m") as i,
        builder.loop(0, vectors, prefix="v") as v,
    ):
        place = sums + i.index * schedule.width + v.index * schedule.lanes
        value = context.read(place, schedule.lanes)
        if shift is not None:
            less = context.read(shift + v.index * schedule.lanes, schedule.lanes)
            value = builder.op("sub", value, less)
        start = column * schedule.width + v.index * schedule.lanes
        lane = context.masked(spec.n - start, spec.n)
        store_vector(context, first + i.index, start, lane, value)


def store_vector(
    context: ContractionContext[Any], row: Dim, column: Dim, lane: Lane, value: Value
) -> None:
    """Store sums of neighbouring columns, from `column` on."""
    spec = context.spec
    spec.store(context.builder, context.batch, row, column + context.lane.index, lane, value)


def at_most(count: int, size: Dim, start: Dim) -> Dim:
    """Return how many of `count` positions from `start` on are within `size`."""
    return count if mod(size, count) == 0 else minimum(count, size - start)

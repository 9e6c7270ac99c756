"""Depthwise convolutions: each channel by itself, so vectors of channels need no turning."""

from __future__ import annotations

from kernelmill.core.dim import Dim, minimum
from kernelmill.kernel.ir import Value
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.emit.microkernel import Tile
from kernelmill.lower.templates.convolution.channels_last.context import DepthwiseContext
from kernelmill.lower.templates.convolution.channels_last.padded_tile import (
    fill_padded_tile,
    padded_strides,
)


def convolve_depthwise(context: DepthwiseContext) -> None:
    """Emit all of the task's channels and rows, some pixels of a row at a time."""
    geometry, schedule = context.geometry, context.schedule
    lanes, size = schedule.lanes, geometry.groups
    first = context.panel_block * schedule.width
    vectors = minimum(
        schedule.vectors, part_count(size, lanes) - context.panel_block * schedule.vectors
    )
    fill_padded_tile(context, first, vectors, size)
    full, rest = divmod(geometry.outputs[1], schedule.across)
    with (
        context.builder.loop(0, vectors, prefix="v") as vector,
        context.builder.loop(context.first, context.last, prefix="row") as row,
    ):
        start = vector.index * lanes
        with context.counted(0, full, prefix="tile") as tile:
            _pixels(context, first, start, row.index, tile * schedule.across, schedule.across)
        if rest:
            _pixels(context, first, start, row.index, full * schedule.across, rest)


def _pixels(
    context: DepthwiseContext, first: Dim, start: Dim, row: Dim, column: Dim, count: int
) -> None:
    geometry, builder = context.geometry, context.builder
    _, line, pixel = padded_strides(context)
    at = context.padded + (row - context.first) * geometry.stride[0] * line
    at = at + column * geometry.stride[1] * pixel + start
    sums = [context.zeros()] * count
    if context.schedule.unrolled:
        for i in range(geometry.kernel[0]):
            sums = _add_row(context, i, first + start, at, sums)
    else:
        carry = [(value.type, value) for value in sums]
        with builder.loop(0, geometry.kernel[0], 1, carry, prefix="k") as loop:
            loop.carry(*_add_row(context, loop.index, first + start, at, list(loop.carried)))
        sums = list(loop.results)
    lane = context.masked(geometry.groups - (first + start), geometry.groups)
    channel = first + start + context.lane.index
    for x, value in enumerate(sums):
        context.spec.store(context.image, channel, (row, column + x), lane, value)


def _add_row(
    context: DepthwiseContext, i: Dim, channel: Dim, at: Dim, sums: list[Value]
) -> list[Value]:
    """Add the products of one row of the window: each vector of pixels is read once."""
    geometry, lanes = context.geometry, context.schedule.lanes
    _, line, pixel = padded_strides(context)
    padded = part_count(geometry.groups, lanes) * lanes
    at = at + i * geometry.dilation[0] * line
    registers = Tile(len(sums), 1, lanes, context.dtype, context.schedule.use_fma)
    known: dict[int, Value] = {}
    sums = list(sums)
    for j in range(geometry.kernel[1]):
        tap = (i * geometry.kernel[1] + j) * padded
        weight = context.weights(tap + channel)
        for x, sum in enumerate(sums):
            place = x * geometry.stride[1] + j * geometry.dilation[1]
            if place not in known:
                known[place] = context.read(at + place * pixel, lanes)
            sums[x] = registers.multiply_add(context.builder, weight, known[place], sum)
    return sums

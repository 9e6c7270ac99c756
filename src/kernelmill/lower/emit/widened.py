"""Packed operands of half types, widened where registers have no instruction to do it beside.

A multiply-add takes numbers of 32 bits, so that each vector of a half type is one instruction more
wherever it is read. One that several tiles read is widened once: into scratch by the task that
reads it, or before all calls when it is packed.
"""

from __future__ import annotations

from kernelmill.core.dim import Dim, mod
from kernelmill.core.dtype import DType
from kernelmill.core.machine import Machine
from kernelmill.lower.elements.sizes import part_count
from kernelmill.lower.emit.context import EmitContext

READINGS = 3
"""By way of scratch a vector is loaded and widened once, stored, and then loaded by each tile: from
so many tiles on that is fewer instructions."""

_TOGETHER = (4, 3, 2)
"""Vectors of a pass."""


def is_half(dtype: DType) -> bool:
    """Whether numbers of this type are widened as they are read."""
    return dtype.compute != dtype


def widening_pays(outer: Dim, each: int, machine: Machine) -> bool:
    """Whether to widen what every tile reads, of so many rows or columns with `each` in a tile:
    where a multiply-add takes lanes, so that loads and widening are what it has beside it."""
    known = isinstance(outer, int) and part_count(outer, each) >= READINGS
    return known and machine.isa.has_lane_operand


def widen(context: EmitContext, name: str, first: Dim, count: Dim, start: Dim) -> None:
    """`count` elements of a packed operand, whole vectors, into scratch from `start` on."""
    lanes = context.lane.count
    together = next((n for n in _TOGETHER if mod(count, n * lanes) == 0), 1)
    with context.builder.loop(0, count, together * lanes, prefix="v") as loop:
        for place in range(0, together * lanes, lanes):
            value = context.read_packed(name, first + loop.index + place, lanes)
            context.write(start + loop.index + place, value)

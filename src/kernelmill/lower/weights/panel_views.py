"""Constant operands of a contraction as views in panels, and in tiles (see `emit/tiles.py`).

The kernel that copies rows of weights into panels, for all sizes.

Weights of a model have many shapes. A kernel for each would be a third of all kernels, for code
that runs once. This one is compiled once, and later found in the store. It reads square blocks of
rows and transposes them in registers, so that both sides are whole cache lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Sym, ceildiv, evaluate, minimum, of_atom
from kernelmill.core.dtype import DType
from kernelmill.core.target.dot_units import DotUnit
from kernelmill.core.target.machine import Machine
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value, row_major
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import SCRATCH, Kernel
from kernelmill.kernel.ir import Value as Register
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.elements.axes import fresh_axes, used_axes
from kernelmill.lower.elements.strided import Stored, strided_view
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.access import Matrix
from kernelmill.lower.emit.context import task_index
from kernelmill.lower.emit.microkernel import transpose
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


_CHUNK = 512
"""Steps of depth that one task copies: its part of a panel stays in the second-level cache."""

_DIMS = ("groups", "outs", "channels", "taps", "block", "strips")


@dataclass(frozen=True)
class PanelCopy:
    """The kernel for one weight: the buffer it reads, and the sizes it is launched with."""

    kernel: Kernel
    source: int
    dims: tuple[int, ...]
    tasks: int
    scratch: int
    work: int


def panel_copy(rows: Rows, stored: Stored, machine: Machine) -> PanelCopy | None:
    """Return the copy of these rows; None where they are not row-major in memory, or panels are not
    whole vectors of 32-bit numbers."""
    place = strided_view(rows.value, stored)
    lanes = machine.isa.lanes(rows.value.dtype) if rows.value.dtype.bits == 32 else 0
    if place is None or place.offset != 0 or lanes < 2 or rows.width % lanes:
        return None
    found = zip(rows.value.shape, place.strides, row_major(rows.value.shape), strict=True)
    gaps = any(size != 1 and stride != dense for size, stride, dense in found)
    if gaps or place.location.dtype != rows.value.dtype:
        return None
    groups, outs, channels, taps = (evaluate(size, {}) for size in rows.value.shape)
    if groups * outs * channels * taps == 0:
        return None
    if taps == 1:  # nothing changes places along a row
        sizes = (groups, outs, channels, rows.width // lanes)
    else:
        sizes = (groups, outs, channels, taps, rows.block, rows.width // lanes)
    kernel = _kernel(rows.value.dtype, lanes, taps != 1)
    values = dict(zip((symbol.name for symbol in kernel.dims), sizes, strict=True))
    tasks = evaluate(kernel.tasks, values)
    scratch = evaluate(kernel.scratch, {})
    bytes = groups * outs * channels * taps * 2 * rows.value.dtype.bytes
    work = int(machine.time(0, {"memory": bytes})) + 1
    return PanelCopy(kernel, place.location.buffer, sizes, tasks, scratch, work)


@cache
def _kernel(dtype: DType, lanes: int, tapped: bool) -> Kernel:
    """Build the kernel for weights with several taps, or for those with one."""
    builder = KernelBuilder("kernel", "Panels")
    names = _DIMS if tapped else tuple(name for name in _DIMS if name not in ("taps", "block"))
    builder.kernel.dims = [Sym(name, 1) for name in names]
    size = {symbol.name: of_atom(symbol) for symbol in builder.kernel.dims}
    if tapped:
        builder.kernel.scratch = lanes * lanes * dtype.bytes
    _Copy(builder, dtype, lanes, size).emit()
    text = print_kernel(builder.kernel, name=False)
    builder.kernel.name = "km_" + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return builder.kernel


class _Copy:
    def __init__(
        self, builder: KernelBuilder, dtype: DType, lanes: int, size: Mapping[str, Dim]
    ) -> None:
        self.b = builder
        self.dtype = dtype
        self.lanes = lanes
        self.size = size
        self.outs = size["outs"]
        self.depth = size["channels"] * size.get("taps", 1)
        self.width = size["strips"] * lanes

    def emit(self) -> None:
        b, groups, depth, lanes = self.b, self.size["groups"], self.depth, self.lanes
        panels, chunks = ceildiv(self.outs, self.width), ceildiv(depth, _CHUNK)
        b.buffer("b0", self.dtype, groups * self.outs * depth, "in")
        b.buffer("b1", self.dtype, groups * panels * depth * self.width, "out")
        b.set_tasks(groups * panels * chunks)
        group, panel, chunk = task_index(b, (groups, panels, chunks))
        start = chunk * _CHUNK
        stop = b.let(b.index(minimum(start + _CHUNK, depth)), 1)
        with b.loop(0, self.size["strips"], prefix="v") as strip:
            first = panel * self.width + strip.index * lanes
            begin = b.let(b.index((group * self.outs + first) * depth))
            to = (group * panels + panel) * depth * self.width + strip.index * lanes
            to = b.let(b.index(to))
            whole = b.op("le", b.index(first + lanes), b.index(self.outs))
            end = b.op("select", whole, b.index(stop - (stop - start) % lanes), b.index(start))
            end = b.let(end)
            with b.loop(start, end, lanes, prefix="c") as column:
                self._block(begin, column.index, to)
            exist = b.op("lane_mask", b.index(self.outs - first), lanes=lanes)
            with b.loop(end, stop, prefix="c") as column:
                self._step(begin, column.index, exist, to)

    def _block(self, begin: Dim, column: Dim, to: Dim) -> None:
        """Transpose as many rows as steps of depth from `column` on."""
        b, lanes = self.b, self.lanes
        rows = [
            b.load("b0", begin + row * self.depth + column, self.dtype, lanes)
            for row in range(lanes)
        ]
        turned = transpose(b, rows)
        if "taps" not in self.size:
            for step, outs in enumerate(turned):
                b.store("b1", to + (column + step) * self.width, outs)
            return
        for step, outs in enumerate(turned):
            b.store(SCRATCH, step * lanes, outs)
        with b.loop(0, lanes, prefix="s") as step:
            outs = b.load(SCRATCH, step.index * lanes, self.dtype, lanes)
            b.store("b1", to + self._position(column + step.index) * self.width, outs)

    def _step(self, begin: Dim, column: Dim, exist: Register, to: Dim) -> None:
        """Copy one step of depth, for the rows that exist."""
        b = self.b
        outs = b.load("b0", begin + column, self.dtype, self.lanes, exist, self.depth)
        b.store("b1", to + self._position(column) * self.width, outs)

    def _position(self, step: Dim) -> Dim:
        """Return the position in a panel of a step along a row: [block][tap][channel]."""
        if "taps" not in self.size:
            return step
        b, taps, block = self.b, self.size["taps"], self.size["block"]
        channel = b.let(b.index(step // taps))
        high = b.let(b.index(channel // block))
        return (high * taps + step - channel * taps) * block + channel - high * block

"""The kernel that copies rows of weights into panels: one for all sizes.

Every weight of a model has a shape of its own. A kernel for each would be a third of what there is
to compile, for code that runs once; this one is compiled once and found in the store from then on.
It reads square blocks of rows and turns them in registers, so that both sides are whole lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Sym, ceildiv, evaluate, minimum, of_atom
from kernelmill.core.dtype import DType
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import SCRATCH, Kernel
from kernelmill.kernel.ir import Value as Register
from kernelmill.kernel.printer import print_kernel
from kernelmill.lower.elements.strided import Stored, strided_view
from kernelmill.lower.emit.context import task_index
from kernelmill.lower.emit.lane_tile import transpose
from kernelmill.lower.weights.panel_views import Rows

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
    if not _row_major(rows.value, place.strides) or place.location.dtype != rows.value.dtype:
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


def _row_major(value: Value, strides: tuple[Dim, ...]) -> bool:
    expected: Dim = 1
    for size, stride in zip(reversed(value.shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected = expected * size
    return True


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

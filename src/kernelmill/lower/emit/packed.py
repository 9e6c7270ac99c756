"""Constant operands that a kernel reads from buffers, which are filled once for all calls.

Operands of half types that are widened once, if no multiply-add widens them.

A multiply-add takes 32-bit numbers, so each vector of a half type costs one more instruction where
it is read, and each broadcast element two or three. An operand that several tiles read is widened
once: into scratch by the task that reads it, or before all calls when it is packed.
"""

from __future__ import annotations

from dataclasses import field

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv, mod
from kernelmill.core.dtype import F16, DType
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.axes import part_count
from kernelmill.lower.elements.emitter import Location, Substitutes
from kernelmill.lower.emit.context import EmitContext


@dataclass(frozen=True)
class PackedWeights:
    """The packed operands of one kernel.

    a, b         panels of a whole operand (`Rows`)
    pieces       tiles of B's pieces, and the magnitudes of its columns (emit/pieces.py)
    leaves       panels of what an operand is computed from as it is read
    substitutes  how the kernel reads what is computed from the leaves
    packing      what `Binding.packing` said, where the spec says it again
    """

    a: Location | None = None
    b: Location | None = None
    pieces: tuple[Location, ...] = ()
    leaves: tuple[Location, ...] = ()
    substitutes: Substitutes = field(default_factory=Substitutes)
    packing: object = None

    @property
    def locations(self) -> tuple[Location, ...]:
        """Locations of all packed operands, in the order in which kernels declare the buffers."""
        whole = (one for one in (self.b, self.a) if one is not None)
        return (*whole, *self.pieces, *self.leaves)

    @property
    def layout(self) -> tuple[bool, bool, int, int]:
        """Kinds of packed operands: kernels of equal groups differ where this differs."""
        return (self.a is not None, self.b is not None, len(self.pieces), len(self.leaves))


AHEAD_BYTES = 2048
"""Prefetch distance of panels that are read once, one after the other: hardware prefetchers of such
streams stop at the end of a small page."""


@dataclass(frozen=True)
class Rows:
    """Rows of weights that panels of `width` outs are copies of.

    `value` is a view of shape (groups, outs, channels, taps); a panel has the order
    [block of channels][tap][channel][out], outs that are not there being zeros.
    """

    value: Value
    width: int
    block: int = 1


def panel_shape(outer: Dim, depth: Dim, width: int) -> tuple[Dim, Dim, Dim]:
    """Return the shape (panels, depth, width) of an operand with `outer` rows or columns.

    Element (p, k, i) is A[p * width + i, k] or B[k, p * width + i], zero beyond `outer`; k counts
    the reduction axes row-major. The width is `Schedule.rows` for A and `Schedule.width` for B.
    """
    return (ceildiv(outer, width), depth, width)


def panel_index(panel: Dim, k: Dim, depth: Dim, width: int) -> Dim:
    """Return the element number where one k of a panel begins."""
    return (panel * depth + k) * width


READINGS = 3
"""By way of scratch a vector is loaded and widened once, stored, and then loaded by each tile: from
so many tiles on that is fewer instructions."""

_TOGETHER = (4, 3, 2)
"""Vectors of a pass."""

_MANY_REGISTERS = 32
"""With so many a tile has 24 products for 11 reads (8 rows of 3 vectors), with half of them 12 for
8 (6 rows of 2)."""


def is_half(dtype: DType) -> bool:
    """Return whether numbers of this type are widened as they are read."""
    return dtype.compute != dtype


def widens_vectors(dtype: DType, machine: Machine) -> bool:
    """Return whether reading a vector of this type takes more than its load."""
    return is_half(dtype) and not (dtype == F16 and machine.isa.loads_half)


def widening_pays(outer: Dim, each: int, machine: Machine) -> bool:
    """Return whether to widen an operand of `outer` rows or columns, `each` in a tile."""
    known = isinstance(outer, int) and part_count(outer, each) >= READINGS
    return known and widening_shows(machine)


def widening_shows(machine: Machine) -> bool:
    """Return whether widening costs time beside multiply-adds: where one takes lanes, so that only
    loads and widening are left beside it, and where registers are few, so that a tile has few
    products for each element."""
    return machine.isa.has_lane_operand or machine.isa.vector_registers < _MANY_REGISTERS


def widen(context: EmitContext, name: str, first: Dim, count: Dim, start: Dim) -> None:
    """Widen `count` elements of a packed operand, whole vectors, into scratch from `start` on."""
    lanes = context.lane.count
    together = next((n for n in _TOGETHER if mod(count, n * lanes) == 0), 1)
    with context.builder.loop(0, count, together * lanes, prefix="v") as loop:
        for place in range(0, together * lanes, lanes):
            value = context.read_packed(name, first + loop.index + place, lanes)
            context.write(start + loop.index + place, value)


EVEN_BYTES = 0x00FF00FF
"""Mask of the first and third of a word's four unsigned bytes, as two 16-bit numbers."""


def unsigned_halves(builder: KernelBuilder, words: Register) -> tuple[Register, Register]:
    """Return the even and the odd ones of four unsigned bytes, each as two numbers of 16 bits."""
    odd = builder.op("shr", words, 8)
    return builder.op("and", words, EVEN_BYTES), builder.op("and", odd, EVEN_BYTES)


def signed_halves(builder: KernelBuilder, words: Register) -> tuple[Register, Register]:
    """Return the even and the odd ones of four signed bytes, each as two numbers of 16 bits."""
    return _signed_odd(builder, builder.op("shl", words, 8)), _signed_odd(builder, words)


def _signed_odd(builder: KernelBuilder, words: Register) -> Register:
    high = builder.op("and", builder.op("shr", words, 8), -0x10000)
    low = builder.op("shr", builder.op("shl", words, 16), 24)
    return builder.op("or", high, builder.op("and", low, 0xFFFF))

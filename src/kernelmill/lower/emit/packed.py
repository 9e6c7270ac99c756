"""Constant operands that a kernel reads from buffers which are filled once, for all calls."""

from __future__ import annotations

from dataclasses import field

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, ceildiv
from kernelmill.graph.ir import Value
from kernelmill.lower.elements.emitter import Location, Substitutes


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
"""How far ahead of their use panels are fetched that are read once, one after the other: what finds
such a stream by itself stops at the end of a small page."""


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

"""Constant operands that a kernel reads from buffers which are filled once, for all calls."""

from __future__ import annotations

from dataclasses import field

from kernelmill.core.dataclass import dataclass
from kernelmill.lower.elements.emitter import Location, Substitutes


@dataclass(frozen=True)
class PackedWeights:
    """The packed operands of one kernel.

    a, b         panels of a whole operand (see panels.py)
    pieces       tiles of B's pieces, and the magnitudes of its columns (see pieces.py)
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

"""Convolutions along pixels as contractions, blocked, with panels of windows."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.emit.widened import widening_pays
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.templates.convolution.planar.spec import PlanarConvolution
from kernelmill.lower.templates.matmul.blocked import Blocked
from kernelmill.lower.templates.matmul.schedule import contraction_candidates


@dataclass(frozen=True)
class PanelWindow:
    """The product of the weights with panels of windows."""

    blocked: Blocked

    @classmethod
    def plan(cls, planar: PlanarConvolution, machine: Machine, candidate: Candidate) -> PanelWindow:
        """Plan the schedule, which every convolution can have."""
        return cls(Blocked.plan(planar.contraction, machine, candidate))

    @property
    def packed_rows(self) -> int:
        """Number of rows of a panel of constant weights."""
        return self.blocked.rows

    def widens(self, spec: PlanarConvolution, machine: Machine) -> bool:
        """Return whether constant weights of a half type are widened when they are packed, since
        each panel of windows reads all of them."""
        return widening_pays(spec.contraction.n, self.blocked.width, machine)

    @property
    def work(self) -> Dim:
        """Estimated nanoseconds of all tasks on one core."""
        return self.blocked.work

    def candidates(self, spec: PlanarConvolution) -> Sequence[Candidate]:
        """Return other register tiles and tasks."""
        return contraction_candidates(spec.contraction, self.blocked)

    def emit(self, builder: KernelBuilder, spec: PlanarConvolution) -> None:
        """Write the kernel's body, and set its `tasks` and `scratch`."""
        self.blocked.emit_kernel(builder, spec.contraction)

"""The convolution template: each convolution in the layout that suits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.fusion.groups import GroupKind
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import GroupContext
from kernelmill.lower.templates.convolution.bind import ConvolutionBinding
from kernelmill.lower.templates.convolution.spec import Convolution


@dataclass(frozen=True)
class ConvolutionTemplate:
    """Convolutions of any number of axes, whatever their layout. Schedules and candidates are those
    of the layout."""

    name: str = "convolution"

    def matches(self, context: GroupContext) -> bool:
        """Return whether the group is around a convolution."""
        seed = context.group.seed
        return context.group.kind is GroupKind.CONTRACT and seed is not None and seed.op == "conv"

    def bind(self, context: GroupContext) -> ConvolutionBinding:
        """Bind the group in the terms of its layout."""
        return ConvolutionBinding(context)

    def schedule(self, spec: Convolution, machine: Machine, candidate: Candidate) -> Any:
        """Return the cost model's schedule."""
        return spec.layout.schedule(spec.what, machine, candidate)

    def candidates(self, spec: Convolution, schedule: Any) -> Sequence[Candidate]:
        """Return other register tiles, blocks of channels and tasks."""
        return spec.layout.candidates(spec.what, schedule)

    def cost(self, spec: Convolution, schedule: Any, machine: Machine) -> Dim:
        """Return estimated nanoseconds of all tasks on one core."""
        return spec.layout.cost(spec.what, schedule, machine)

    def loss(
        self, spec: Convolution, schedule: Any, sizes: Mapping[str, int], machine: Machine
    ) -> float:
        """Return the loss by the layout's cost model."""
        return spec.layout.loss(spec.what, schedule, sizes, machine)

    def emit(self, emitter: Emitter, spec: Convolution, schedule: Any) -> None:
        """Write the kernel's body, its tasks and scratch."""
        spec.layout.emit(emitter, spec.what, schedule)

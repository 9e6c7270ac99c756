"""The matmul template: products and grouped products as contractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.fusion.groups import GroupKind
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import GroupContext, Template
from kernelmill.lower.templates.matmul.bind import ContractionBinding
from kernelmill.lower.templates.matmul.schedule import (
    RowClasses,
    contraction_candidates,
    contraction_loss,
    emit_classes,
    plan_classes,
    plan_contraction,
)
from kernelmill.lower.templates.matmul.spec import Contraction, product_roles


class MatmulTemplate(Template[Contraction, RowClasses]):
    """C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n], in register tiles. A schedule
    is a body for each class of numbers of rows, the last for all others."""

    name = "matmul"

    def matches(self, context: GroupContext) -> bool:
        """Return whether the group is around a product or a grouped product."""
        seed = context.group.seed
        return context.group.kind is GroupKind.CONTRACT and seed is not None and seed.op != "conv"

    def bind(self, context: GroupContext) -> ContractionBinding:
        """Bind the group as a contraction."""
        return ContractionBinding(context, product_roles)

    def schedule(self, spec: Contraction, machine: Machine, candidate: Candidate) -> RowClasses:
        """Plan the schedule for each class of sizes."""
        return plan_classes(spec, machine, plan_contraction(spec, machine, candidate))

    def candidates(self, spec: Contraction, schedule: RowClasses) -> Sequence[Candidate]:
        """Return other register tiles and tasks."""
        return contraction_candidates(spec, schedule[-1].schedule) if spec.rows is None else ()

    def cost(self, schedule: RowClasses) -> Dim:
        return schedule[-1].schedule.work

    def loss(
        self, spec: Contraction, schedule: RowClasses, sizes: Mapping[str, int],
        machine: Machine,
    ) -> float:  # fmt: skip
        """Return the loss by the tiles and tasks of both, and the part of B that is prefetched."""
        return contraction_loss(spec, schedule, sizes, machine)

    def emit(self, emitter: Emitter, spec: Contraction, schedule: RowClasses) -> None:
        emit_classes(emitter.builder, spec, schedule)

"""The map and reduce template: pointwise nodes, views and reductions in one kernel."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.fusion.groups import GroupKind
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import Binding, GroupContext, Template
from kernelmill.lower.templates.map_reduce.emit import emit_nest
from kernelmill.lower.templates.map_reduce.schedule import Nest, NestSchedule, nest_loss, plan_nest


class MapReduceBinding(Binding[Nest]):
    """A group without a seed."""

    def spec(self, emitter: Emitter, packed: PackedWeights) -> Nest:
        """Return the group as it is."""
        context = self.context
        return Nest(context.group, context.targets, context.costs, context.stored)


class MapReduceTemplate(Template[Nest, NestSchedule]):
    """Loops over the axes of a group, and passes over those that its reductions reduce."""

    name = "map_reduce"

    def matches(self, context: GroupContext) -> bool:
        """Return whether the group has no seed."""
        return context.group.kind is GroupKind.NEST

    def bind(self, context: GroupContext) -> MapReduceBinding:
        """Bind the group as it is."""
        return MapReduceBinding(context)

    def schedule(self, spec: Nest, machine: Machine, candidate: Candidate) -> NestSchedule:
        """Return the only schedule: merged axes, and the axis that vectors run along."""
        return plan_nest(spec, machine)

    def cost(self, schedule: NestSchedule) -> Dim:
        return schedule.work

    def loss(
        self, spec: Nest, schedule: NestSchedule, sizes: Mapping[str, int], machine: Machine
    ) -> float:
        """Return the loss by the loop that vectors run along, where only a number of rows is
        symbolic."""
        return nest_loss(schedule, sizes)

    def emit(self, emitter: Emitter, spec: Nest, schedule: NestSchedule) -> None:
        emit_nest(emitter, spec, schedule)

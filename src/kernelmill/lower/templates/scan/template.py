"""The scan template: running sums and products along one axis, in eager's order."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.fusion.groups import GroupKind
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import (
    GroupContext,
    NothingPacked,
    OneSchedule,
    UnknownLoss,
)
from kernelmill.lower.templates.scan.emit import emit_scan
from kernelmill.lower.templates.scan.schedule import ScanSchedule, plan_scan
from kernelmill.lower.templates.scan.spec import ScanSpec


@dataclass(frozen=True)
class ScanBinding(NothingPacked):
    """A cumsum or cumprod."""

    context: GroupContext

    def spec(self, emitter: Emitter, packed: PackedWeights) -> ScanSpec:
        """What is computed."""
        node = self.context.group.seed
        assert node is not None
        source, axis, target = (
            node.operands[0],
            node.attrs["dim"],
            self.context.targets[node.result],
        )
        assert isinstance(axis, int)

        def store(_: KernelBuilder, index: Index, lane: Lane | None, register: Register) -> None:
            with emitter.block() if lane is None else emitter.lanes(lane):
                emitter.store(target, index, register)

        return ScanSpec(
            source.shape, axis, OPS[node.op].kernel_op or "", source.dtype,
            lambda _, index, lane: emitter.read(source, index, lane), store,
        )  # fmt: skip


@dataclass(frozen=True)
class ScanTemplate(OneSchedule, UnknownLoss):
    """result[..., i, ...] is the sum or product of elements 0..i."""

    name: str = "scan"

    def matches(self, context: GroupContext) -> bool:
        """Any group of a scan node."""
        return context.group.kind is GroupKind.SCAN

    def bind(self, context: GroupContext) -> ScanBinding:
        """The node's operand and axis."""
        return ScanBinding(context)

    def schedule(self, spec: ScanSpec, machine: Machine, candidate: Candidate) -> ScanSchedule:
        """Vectors along the last axis, or rows side by side."""
        return plan_scan(spec, machine)

    def cost(self, spec: ScanSpec, schedule: ScanSchedule, machine: Machine) -> Dim:
        """Estimated nanoseconds of all tasks on one core."""
        return schedule.work

    def emit(self, emitter: Emitter, spec: ScanSpec, schedule: ScanSchedule) -> None:
        """Write the kernel's body and its tasks."""
        emitter.builder.set_tasks(schedule.tasks)
        emit_scan(emitter.builder, spec, schedule)

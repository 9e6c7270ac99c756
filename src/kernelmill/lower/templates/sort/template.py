"""The sort template: sort and topk as positions, in eager's order of equal elements."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import (
    GroupContext,
    NothingPacked,
    OneSchedule,
    UnknownLoss,
)
from kernelmill.lower.templates.sort.emit import emit_sort
from kernelmill.lower.templates.sort.schedule import SortSchedule, plan_sort
from kernelmill.lower.templates.sort.spec import RADIX_SORTED, SortSpec, Top


@dataclass(frozen=True)
class SortBinding(NothingPacked):
    """An argsort or argtopk."""

    context: GroupContext

    def spec(self, emitter: Emitter, packed: PackedWeights) -> SortSpec:
        """What is computed."""
        node = self.context.group.seed
        assert node is not None
        source, attrs, target = node.operands[0], node.attrs, self.context.targets[node.result]
        axis = attrs["dim"]
        assert isinstance(axis, int)
        stable: bool | int
        if node.op == "argtopk":
            k = attrs["k"]
            assert isinstance(k, (int, Expr))
            top = Top(k, bool(attrs["sorted"]))
            descending, stable = bool(attrs["largest"]), False
        else:
            top, descending, stable = None, bool(attrs["descending"]), bool(attrs["stable"])
            if not descending and source.dtype.is_integer and len(source.shape) == 1:
                stable = stable or RADIX_SORTED

        def store(_: KernelBuilder, index: Index, register: Register) -> None:
            with emitter.block():
                emitter.store(target, index, register)

        return SortSpec(
            source.shape, axis, source.dtype, descending, stable, top,
            lambda _, index, lane: emitter.read(source, index, lane), store,
        )  # fmt: skip


@dataclass(frozen=True)
class SortTemplate(OneSchedule, UnknownLoss):
    """Which element comes i-th along an axis."""

    name: str = "sort"

    def matches(self, context: GroupContext) -> bool:
        """Any group of a sort node."""
        seed = context.group.seed
        return seed is not None and seed.op in ("argsort", "argtopk")

    def bind(self, context: GroupContext) -> SortBinding:
        """The node's operand, axis and order."""
        return SortBinding(context)

    def schedule(self, spec: SortSpec, machine: Machine, candidate: Candidate) -> SortSchedule:
        """Tasks of rows."""
        return plan_sort(spec, machine)

    def cost(self, spec: SortSpec, schedule: SortSchedule, machine: Machine) -> Dim:
        """Estimated nanoseconds of all tasks on one core."""
        return schedule.work

    def emit(self, emitter: Emitter, spec: SortSpec, schedule: SortSchedule) -> None:
        """Write the kernel's body, its tasks and scratch."""
        emit_sort(emitter.builder, spec, schedule)

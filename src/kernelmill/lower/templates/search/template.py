"""The search template: where values stand among ascending numbers."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.emit.packed import PackedWeights
from kernelmill.lower.schedule.candidate import Candidate
from kernelmill.lower.schedule.template import (
    GroupContext,
    NothingPacked,
    OneSchedule,
    UnknownLoss,
)
from kernelmill.lower.templates.search.emit import emit_search
from kernelmill.lower.templates.search.schedule import SearchSchedule, plan_search
from kernelmill.lower.templates.search.spec import SearchSpec


@dataclass(frozen=True)
class SearchBinding(NothingPacked):
    """A searchsorted."""

    context: GroupContext

    def spec(self, emitter: Emitter, packed: PackedWeights) -> SearchSpec:
        """What is computed."""
        node = self.context.group.seed
        assert node is not None
        rows, values = node.operands
        target, dtype = self.context.targets[node.result], node.result.dtype

        def number(_: KernelBuilder, index: Dims, position: Dim) -> Register:
            row = index[:-1] if len(rows.shape) > 1 else ()
            return emitter.read(rows, (*row, position), None)

        def store(builder: KernelBuilder, index: Dims, position: Register) -> None:
            if position.type.dtype != dtype:
                position = builder.op("cast", position, dtype=dtype)
            with emitter.block():
                emitter.store(target, index, position)

        return SearchSpec(
            values.shape, rows.shape[-1], bool(node.attrs["right"]),
            lambda _, index: emitter.read(values, index, None), number, store,
        )  # fmt: skip


@dataclass(frozen=True)
class SearchTemplate(OneSchedule, UnknownLoss):
    """Positions in rows of ascending numbers, found by halving."""

    name: str = "search"

    def matches(self, context: GroupContext) -> bool:
        """Any group of a searchsorted."""
        seed = context.group.seed
        return seed is not None and seed.op == "searchsorted"

    def bind(self, context: GroupContext) -> SearchBinding:
        """The node's rows and values."""
        return SearchBinding(context)

    def schedule(self, spec: SearchSpec, machine: Machine, candidate: Candidate) -> SearchSchedule:
        """Tasks of values."""
        return plan_search(spec, machine)

    def cost(self, spec: SearchSpec, schedule: SearchSchedule, machine: Machine) -> Dim:
        """Estimated nanoseconds of all tasks on one core."""
        return schedule.work

    def emit(self, emitter: Emitter, spec: SearchSpec, schedule: SearchSchedule) -> None:
        """Write the kernel's body and its tasks."""
        emit_search(emitter.builder, spec, schedule)

"""Epilogues: the members of a group that follow from each result of its seed, and the stores."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import substitute
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements import pointwise
from kernelmill.lower.elements.axes import used_axes
from kernelmill.lower.elements.domain import Access, collect
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.fusion.groups import Group


@dataclass(frozen=True)
class Epilogue:
    """The epilogue of a group with a seed; its roots go to `targets`."""

    emitter: Emitter
    group: Group
    targets: Mapping[Value, Location]

    @property
    def seed(self) -> Node:
        """Node whose results the template computes."""
        assert self.group.seed is not None
        return self.group.seed

    def store(self, index: Index, lane: Lane | None, register: Register) -> None:
        """Emit the members and stores that follow from an element of the seed, or a vector."""
        emitter, builder, result = self.emitter, self.emitter.builder, self.seed.result
        index = tuple(0 if s == 1 else i for s, i in zip(result.shape, index, strict=True))
        if lane is not None and lane.symbol.name not in used_axes(index):
            # A single column: only the first lane holds a sum.
            lane, register = None, builder.op("extract", register, 0)
        with emitter.block() if lane is None else emitter.lanes(lane):
            if register.type.dtype != result.dtype.compute:
                register = builder.op("cast", register, dtype=result.dtype.compute)
            register = pointwise.round_to(builder, register, result.dtype)
            # Members read each other's own element, which a reshape may write in another way.
            emitter.bind_everywhere(result, register)
            at = self.roots_at(index)
            registers = [emitter.element(value, i) for value, i in at]
            for (value, i), element in zip(at, registers, strict=True):
                emitter.store(self.targets[value], i, element)

    def roots_at(self, index: Index) -> list[tuple[Value, Index]]:
        """Return the values that the group stores, with their indices at an element of the seed."""
        axes = iter(self.group.outer)
        env = {
            next(axes).name: position
            for size, position in zip(self.seed.result.shape, index, strict=True)
            if size != 1
        }
        return [
            (value, tuple(substitute(i, env) for i in own))
            for value, own in self.group.roots.items()
        ]

    def images_read(self, index: Index) -> list[Access]:
        """Return the accesses to tensors as large as the result, such as a residual, at an element
        of it."""
        result = self.seed.result
        accesses = collect(self.roots_at(index), self.emitter.stored, {result})
        return [a for a in accesses if a.value is not None and a.value.shape == result.shape]

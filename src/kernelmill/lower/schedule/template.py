"""Templates: the interface by which a kind of fusion group becomes a kernel.

For each group the first template that matches is taken (templates/registry.py). It binds the group:
a `Binding` says how constant operands are to be packed, and gives a frozen spec, what is to be
computed. A schedule says how that is cut into tasks, loops and register tiles; the cost model
chooses one, or a search (search.py) among the candidates by measuring. `emit` writes the kernel.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, Protocol, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.emit.packed import PackedWeights, Rows
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.groups import Group
from kernelmill.lower.schedule.candidate import Candidate


class Pack(Protocol):
    """A callback that stores a constant value once, maybe a copy of `rows`; it returns None for
    other values."""

    def __call__(self, view: Value, rows: Rows | None = None) -> Location | None: ...


@dataclass(frozen=True)
class GroupContext:
    """A fusion group in its surroundings.

    targets               where the group's roots go
    stored                where values are that the group reads, None for its own members
    dequantised_in_place  values that products compute from smaller weights as they read them
    costs                 of the graph's values
    is_constant           whether parameters alone decide a value
    pack                  has constant values stored once
    kernel_type           what the kernel is called in reports
    """

    group: Group
    targets: Mapping[Value, Location]
    machine: Machine
    stored: Callable[[Value], Location | None]
    dequantised_in_place: AbstractSet[Value]
    costs: Costs
    is_constant: Callable[[Value], bool]
    pack: Pack
    kernel_type: str

    def emitter(self, packed: PackedWeights) -> Emitter:
        """Return an emitter of an empty kernel, in which the packed weights are declared."""
        builder = KernelBuilder(UNNAMED, self.kernel_type, outside=self.machine.isa.outside)
        emitter = Emitter(builder, self.stored, packed.substitutes)
        for location in self.targets.values():
            # No code stores what has no elements; that there is such a tensor must be known.
            if location.elements == 0:
                emitter.param(location, "out")
        for location in packed.locations:
            emitter.param(location, "in")
        return emitter


UNNAMED = "kernel"
"""The name of a kernel whose text is not made yet."""

STATUS_BUFFER = -1
"""Stands for the status word among a launch's buffers."""

Loss = Callable[[Mapping[str, int]], float]
"""How much longer, as a part of the time, a kernel of symbolic sizes takes at these values of its
symbols than a kernel for them alone would; infinite where the cost model cannot tell."""

SpecT = TypeVar("SpecT")
ScheduleT = TypeVar("ScheduleT")


class Binding(ABC, Generic[SpecT]):
    """A fusion group as its template sees it. By default it packs no constant operands."""

    @property
    def f32_products(self) -> str:
        """Method of computing f32 products, for reports; "" where torch's setting of their
        precision does not apply."""
        return ""

    def packing(self, candidate: Candidate) -> Hashable:
        """Return the layout for constant operands: the same for groups of equal structure."""
        return None

    def pack(self, packing: Any) -> PackedWeights:
        """Pack the constant operands in that layout."""
        return PackedWeights()

    @abstractmethod
    def spec(self, emitter: Emitter, packed: PackedWeights) -> SpecT:
        """Return the spec of the kernel; its callbacks emit code by way of the emitter."""


class Template(ABC, Generic[SpecT, ScheduleT]):
    """A kind of kernel. The `name` is that of reports and keys; templates of one name and several
    layouts tell these apart by `layout`."""

    name: str
    layout: str = ""

    @abstractmethod
    def matches(self, context: GroupContext) -> bool:
        """Return whether the template takes this group."""

    @abstractmethod
    def bind(self, context: GroupContext, /) -> Binding[SpecT]:
        """Bind the group. Raises UnsupportedError, naming the node, for sizes that the template
        does not support."""

    @abstractmethod
    def schedule(self, spec: SpecT, machine: Machine, candidate: Candidate) -> ScheduleT:
        """Return the cost model's schedule, with the sizes that a candidate fixes."""

    def candidates(self, spec: SpecT, schedule: ScheduleT) -> Sequence[Candidate]:
        """Return candidates to try in place of the cost model's schedule, the likelier first."""
        return ()

    @abstractmethod
    def cost(self, schedule: ScheduleT) -> Dim:
        """Return estimated nanoseconds of all tasks on one core."""

    def loss(
        self, spec: SpecT, schedule: ScheduleT, sizes: Mapping[str, int], machine: Machine
    ) -> float:
        """Return the `Loss` of the schedule of a spec with symbolic sizes."""
        return math.inf

    @abstractmethod
    def emit(self, emitter: Emitter, spec: SpecT, schedule: ScheduleT) -> None:
        """Write the kernel's body, its tasks and scratch."""


class Cut(Protocol):
    """A schedule that gives the number of tasks, and the nanoseconds of all of them on one core."""

    @property
    def tasks(self) -> Dim: ...

    @property
    def work(self) -> Dim: ...


CutT = TypeVar("CutT", bound=Cut)

MakeSpec = Callable[[Emitter, Node, Location], SpecT]
"""What is computed by a node whose result goes to that memory."""


@dataclass(frozen=True)
class NodeBinding(Binding[SpecT]):
    """The binding of a group of one node."""

    context: GroupContext
    make_spec: MakeSpec[SpecT]

    def spec(self, emitter: Emitter, packed: PackedWeights) -> SpecT:
        """Return the spec made from the node."""
        node = self.context.group.seed
        assert node is not None
        return self.make_spec(emitter, node, self.context.targets[node.result])


def bind_node(make_spec: MakeSpec[SpecT]) -> Callable[[GroupContext], NodeBinding[SpecT]]:
    """Return a function that binds groups of one node."""
    return lambda context: NodeBinding(context, make_spec)


@dataclass(frozen=True)
class NodeTemplate(Template[SpecT, CutT]):
    """A template of groups around a node of one of the `operators`, which `binding` binds, with one
    schedule, made by `plan`; `write` appends the code of a task."""

    name: str
    operators: frozenset[str]
    binding: Callable[[GroupContext], Binding[SpecT]]
    plan: Callable[[SpecT, Machine], CutT]
    write: Callable[[KernelBuilder, SpecT, CutT], None]

    def matches(self, context: GroupContext) -> bool:
        """Return whether the group is around such a node."""
        seed = context.group.seed
        return seed is not None and seed.op in self.operators

    def bind(self, context: GroupContext, /) -> Binding[SpecT]:
        """Bind the group."""
        return self.binding(context)

    def schedule(self, spec: SpecT, machine: Machine, candidate: Candidate) -> CutT:
        """Return the only schedule."""
        return self.plan(spec, machine)

    def cost(self, schedule: CutT) -> Dim:
        """Return estimated nanoseconds of all tasks on one core."""
        return schedule.work

    def emit(self, emitter: Emitter, spec: SpecT, schedule: CutT) -> None:
        """Write the kernel's body, its tasks and scratch."""
        emitter.builder.set_tasks(schedule.tasks)
        self.write(emitter.builder, spec, schedule)

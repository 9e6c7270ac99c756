"""Templates: the interface by which a kind of fusion group becomes a kernel.

The first template that matches a group binds it (templates/registry.py). The `Binding` says how to
pack constant operands, and has a frozen spec of the computation. A schedule says how the work is
divided into tasks, loops and register tiles. The cost model chooses it, or a search (search.py)
measures the candidates. `emit` writes the kernel.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, Protocol, TypeVar

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, maximum, minimum, substitute
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements import pointwise
from kernelmill.lower.elements.axes import used_axes
from kernelmill.lower.elements.domain import IndexAccess, collect
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.packed import PackedWeights, Rows
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.groups import FusionGroup
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

    group: FusionGroup
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
"""Relative loss of a kernel of symbolic sizes at these values of its symbols, compared with a
static kernel; infinite if the cost model has no estimate."""

SpecT = TypeVar("SpecT")
ScheduleT = TypeVar("ScheduleT")


class Binding(ABC, Generic[SpecT]):
    """A fusion group as its template sees it. By default it packs no constant operands."""

    def __init__(self, context: GroupContext) -> None:
        self.context = context

    @property
    def seed(self) -> Node:
        """The node that the group is around."""
        assert self.context.group.seed is not None
        return self.context.group.seed

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
"""Returns the spec of a node whose result is written to that memory."""


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
        return schedule.work

    def emit(self, emitter: Emitter, spec: SpecT, schedule: CutT) -> None:
        emitter.builder.set_tasks(schedule.tasks)
        self.write(emitter.builder, spec, schedule)


@dataclass(frozen=True)
class Epilogue:
    """The epilogue of a group with a seed; its roots go to `targets`."""

    emitter: Emitter
    group: FusionGroup
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
            register = builder.cast(register, result.dtype.compute)
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

    def images_read(self, index: Index) -> list[IndexAccess]:
        """Return the accesses to tensors as large as the result, such as a residual, at an element
        of it."""
        result = self.seed.result
        accesses = collect(self.roots_at(index), self.emitter.stored, {result})
        return [a for a in accesses if a.value is not None and a.value.shape == result.shape]


@dataclass(frozen=True)
class SizeClass(Generic[ScheduleT]):
    """The schedule of sizes up to `most`, of all others with None, and its tasks for any of them
    but 0. With `exact` there is nothing else in the class than that size."""

    most: int | None
    schedule: ScheduleT
    tasks: Dim
    exact: bool = False


Body = Callable[[ScheduleT, Dim, Dim], None]
"""`body(schedule, task, size)`: emits one task; the size and the task's number have ranges there
that are those of the class."""


def emit_by_size(
    builder: KernelBuilder,
    size: Dim,
    classes: Sequence[SizeClass[ScheduleT]],
    body: Body[ScheduleT],
) -> None:
    """Set the kernel's tasks and append the body for each class, smallest first, in a
    branch that its sizes take. A size of 0 has no tasks."""
    builder.set_tasks(tasks_by_size(size, classes))
    builder.kernel.classes = class_texts(size, classes)
    _branch(builder, size, classes, body)


def tasks_by_size(size: Dim, classes: Sequence[SizeClass[Any]]) -> Dim:
    """Return the tasks: those of the class, picked by factors that are 1 within it, else 0."""
    *smaller, rest = classes
    tasks, larger = rest.tasks, rest.tasks
    for one in reversed(smaller):
        assert one.most is not None
        within = minimum(1, maximum(0, one.most + 1 - size))
        tasks = tasks + within * (one.tasks - larger)
        larger = one.tasks
    return tasks * minimum(1, size)


def class_texts(size: Dim, classes: Sequence[SizeClass[Any]]) -> tuple[str, ...]:
    """Return the classes in words, for reports."""
    *smaller, _ = (one.most for one in classes)
    return (*(f"{size} <= {most}" for most in smaller), f"{size} > {smaller[-1]}")


def _branch(
    builder: KernelBuilder,
    size: Dim,
    classes: Sequence[SizeClass[ScheduleT]],
    body: Body[ScheduleT],
) -> None:
    first, *others = classes
    if first.most is None:
        _call(builder, first, size, body)
        return
    value = builder.index(size)
    with builder.when(builder.op("le", value, first.most)) as branch:
        _call(builder, first, builder.let(value, 1, first.most), body)
    with builder.otherwise(branch):
        _branch(builder, size, others, body)


def _call(
    builder: KernelBuilder, one: SizeClass[ScheduleT], size: Dim, body: Body[ScheduleT]
) -> None:
    if one.tasks != 0:
        task = builder.let(builder.index(builder.task), 0, one.tasks - 1)
        body(one.schedule, task, one.most if one.exact and one.most is not None else size)

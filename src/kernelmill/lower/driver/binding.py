"""Kernels for the groups of a program, each distinct one once, bound to memory.

Placed values keep their buffers. Constants that kernels read in a packed layout get buffers after
those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from kernelmill.config.super_kernel_marks import UNMARKED, Mark
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, of_atom, substitute
from kernelmill.core.dtype import DType
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.scalar import NUMBERS
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.ir import Kernel, used_symbols
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.driver.constants import Constants
from kernelmill.lower.driver.kernels import KernelCache, KernelMaker, launch_mark
from kernelmill.lower.driver.lowered import Announce, KernelFacts, LoweredOperator, NewKernel
from kernelmill.lower.driver.operators import Operator
from kernelmill.lower.driver.placement import Call, Placed, Work, buffer_of
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.fusion.groups import storing
from kernelmill.lower.schedule.search import Settle
from kernelmill.lower.schedule.template import STATUS_BUFFER, UNNAMED, Loss
from kernelmill.lower.weights.panel_views import PanelCopy, Rows, panel_copy
from kernelmill.plan.ir import (
    AtenCall,
    BufferKind,
    BufferSpec,
    KernelRef,
    Launch,
    Plan,
    Step,
    TensorInput,
    TensorResult,
)


class InlinedPlan:
    """A renaming of a plan's symbols to `values`, and of its arguments and results to buffers.

    `inputs` are the program's buffers for the plan's tensor arguments, in order, and `outputs`
    those for its results. Raises UnsupportedError for a plan that does more than launch kernels.
    """

    def __init__(
        self, plan: Plan, values: Mapping[str, Dim], inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        self.plan = plan
        self.values = values
        arguments = [i for i, entry in enumerate(plan.inputs) if isinstance(entry, TensorInput)]
        sources = dict(zip(arguments, inputs, strict=True))
        self.numbers = {-1: -1}
        for number, buffer in enumerate(plan.buffers):
            if buffer.kind == BufferKind.INPUT:
                self.numbers[number] = sources[buffer.source]
        if plan.views:
            raise UnsupportedError("an operator gives back a view")
        for result, output in zip(plan.results, outputs, strict=True):
            if not isinstance(result, TensorResult) or result.buffer in self.numbers:
                raise UnsupportedError("an operator gives back what it was given")
            self.numbers[result.buffer] = output

    def buffers(self, first: int) -> list[BufferSpec]:
        """Return the plan's own buffers, which get the numbers from `first` on."""
        own: list[BufferSpec] = []
        for number, buffer in enumerate(self.plan.buffers):
            if number not in self.numbers:
                self.numbers[number] = first + len(own)
                shape = tuple(map(self._dim, buffer.shape))
                own.append(
                    replace(buffer, shape=shape, strides=tuple(map(self._dim, buffer.strides)))
                )
        return own

    def launches(
        self, steps: Iterable[Step], mark: Mark = UNMARKED, origin: str = ""
    ) -> list[Launch]:
        """Return these steps of the plan as steps of the program, in the range of `mark`."""
        found: list[Launch] = []
        for step in steps:
            if not isinstance(step, Launch):
                raise UnsupportedError("an operator that calls another")
            buffers = tuple(self.numbers[buffer] for buffer in step.buffers)
            dims = tuple(map(self._dim, step.dims))
            tasks, scratch, work = map(self._dim, (step.tasks, step.scratch, step.work))
            found.append(
                Launch(step.kernel, buffers, dims, tasks, scratch, work, mark, origin=origin)
            )
        return found

    def _dim(self, dim: Dim) -> Dim:
        return substitute(dim, self.values)


@dataclass(frozen=True)
class BoundSteps:
    """The steps of a program, and those that pack its weights.

    buffers    those that were placed, and behind them what packing and inlined plans have
    facts      by kernel, what reports tell of it
    checks     the user's lines that look at indices; None where no kernel does
    losses     by kernel, what its launches lose against kernels for known sizes
    """

    buffers: tuple[BufferSpec, ...]
    prepare: tuple[Launch, ...]
    steps: tuple[Step, ...]
    kernels: Mapping[str, Kernel]
    facts: Mapping[str, KernelFacts]
    refs: tuple[KernelRef, ...]
    checks: tuple[str, ...] | None
    losses: Mapping[str, Sequence[Loss]]


@dataclass(frozen=True)
class Making:
    """The settings and collaborators that kernels of a program are made with.

    settle    says of schedules what the cost model does not decide
    cache     kernels of other programs lowered alike, to be shared
    announce  is told of each new kernel, so that compiling it can begin
    inlined   operators by themselves, and what they were lowered to, in place of kernels for work
    """

    machine: Machine
    settle: Settle | None = None
    cache: KernelCache | None = None
    announce: Announce | None = None
    inlined: Mapping[Work, tuple[Operator, LoweredOperator]] = field(
        default_factory=dict[Work, tuple[Operator, LoweredOperator]]
    )


def bind(placed: Placed, making: Making) -> BoundSteps:
    """Make the kernels, and their launches. UnsupportedError names the node that no template
    takes."""
    return _Binder(placed, making).run()


class _Binder:
    """A pass over the steps that makes kernels and launches. Its collections only grow."""

    def __init__(self, placed: Placed, making: Making) -> None:
        self.placed = placed
        self.making = making
        self.graph = placed.prepared.graph
        self.buffers = list(placed.buffers)
        self.prepare: list[Launch] = []
        self.steps: list[Step] = []
        self.kernels: dict[str, Kernel] = {}
        self.facts: dict[str, KernelFacts] = {}
        self.losses: dict[str, list[Loss]] = {}
        self.refs: dict[str, KernelRef] = {}
        self.checks: set[str] | None = None
        self.packed: dict[Value, Location] = {}
        self.packed_structures: dict[tuple[object, ...], Location] = {}
        self.constants = Constants(placed.prepared.constants, self.buffers, self._stored)
        self.maker = self._maker()

    def _maker(self) -> KernelMaker:
        grouping, making = self.placed.grouping, self.making
        return KernelMaker(
            making.machine,
            self._stored,
            lambda value: self.constants.decide([value]),
            self._pack,
            grouping.costs,
            grouping.dequantised_in_place,
            making.settle,
            making.cache or KernelCache(),
        )

    def run(self) -> BoundSteps:
        for step in self.placed.steps:
            if isinstance(step, Call):
                self.steps.append(self._call(step))
            else:
                launches = self._launches(step)
                (self.prepare if step.constant else self.steps).extend(launches)
        checks = None if self.checks is None else tuple(sorted(self.checks))
        return BoundSteps(
            tuple(self.buffers), tuple(self.prepare), tuple(self.steps), self.kernels,
            self.facts, tuple(self.refs.values()), checks, self.losses,
        )  # fmt: skip

    # ---- kernels ---------------------------------------------------------------------------------

    def _launches(self, work: Work) -> list[Launch]:
        """Return the launches that do the work: chosen ones, else one of a kernel made here."""
        inlined = self.making.inlined.get(work)
        return [self._kernel(work)] if inlined is None else self._inlined(work, *inlined)

    def _kernel(self, work: Work) -> Launch:
        made = self.maker.make(work)
        if STATUS_BUFFER in made.buffers:
            self._note_check(work.nodes)
        kernel = self._named(made.kernel, work.nodes, made.buffers, made.loss)
        self.facts[kernel.name] = made.facts
        losses = self.losses.setdefault(kernel.name, [])
        if made.loss not in losses:
            losses.append(made.loss)
        dims = tuple(of_atom(symbol) for symbol in kernel.dims)
        return Launch(
            kernel.name, made.buffers, dims, kernel.tasks, kernel.scratch, made.work,
            launch_mark(work.nodes), origin=_origin(work.nodes),
        )  # fmt: skip

    def _inlined(self, work: Work, operator: Operator, chosen: LoweredOperator) -> list[Launch]:
        plan = chosen.lowered.plan
        inlined = InlinedPlan(plan, chosen.values, operator.inputs, operator.outputs)
        self.buffers += inlined.buffers(len(self.buffers))
        packing = inlined.launches(plan.prepare)
        self.prepare += packing
        launches = inlined.launches(plan.steps, launch_mark(work.nodes), _origin(work.nodes))
        if any(STATUS_BUFFER in launch.buffers for launch in launches):
            self._note_check(work.nodes)
        self.facts.update(chosen.lowered.facts)
        buffers = {launch.kernel: launch.buffers for launch in (*packing, *launches)}
        for ref in plan.kernels:
            own = replace(ref, origin=_origin(work.nodes))
            self._add(chosen.lowered.kernels[ref.name], own, buffers[ref.name])
        return launches

    def _note_check(self, nodes: Iterable[Node]) -> None:
        checked = (OpKind.GATHER, OpKind.SCATTER, OpKind.CONTRACT, OpKind.ATTENTION)
        origins = {n.origin for n in nodes if OPS[n.op].kind in checked and n.origin}
        self.checks = origins if self.checks is None else self.checks | origins

    def _named(
        self,
        kernel: Kernel,
        nodes: Sequence[Node],
        buffers: Iterable[int],
        loss: Loss | None = None,
    ) -> Kernel:
        """Name the kernel by its text, so that equal kernels are one. Its own symbols stay, for an
        equal kernel may be about other sizes. `buffers` are those of a launch."""
        text = ""
        if kernel.name == UNNAMED:
            used = used_symbols(kernel)
            kernel.dims = [s for name, s in sorted(self.graph.symbols.items()) if name in used]
            text = print_kernel(kernel, name=False)
            kernel.name = "km_" + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        operators = tuple(node.op for node in nodes)
        ref = KernelRef(kernel.name, kernel.type, kernel.name, operators, _origin(nodes))
        losses = () if loss is None or not kernel.dims else (loss,)
        self._add(kernel, ref, buffers, text, losses)
        return kernel

    def _add(
        self, kernel: Kernel, ref: KernelRef, buffers: Iterable[int], text: str = "",
        losses: Sequence[Loss] = (),
    ) -> None:  # fmt: skip
        """Keep a kernel, and tell of it, unless that was done. `buffers` are those of a launch."""
        if kernel.name in self.kernels:
            return
        self.kernels[kernel.name] = kernel
        self.refs[kernel.name] = ref
        if self.making.announce is not None:
            shapes = tuple(self.buffers[n].shape if n >= 0 else (1,) for n in buffers)
            self.making.announce(NewKernel(kernel, text, ref, shapes, losses))

    # ---- constants in layouts of kernels ---------------------------------------------------------

    def _stored(self, value: Value) -> Location | None:
        if not self.placed.grouping.reads(value):
            return None
        return self._location(value)

    def _location(self, value: Value) -> Location | None:
        return self.packed.get(value) or self.placed.locations.get(value)

    def _pack(self, view: Value, rows: Rows | None = None) -> Location | None:
        """Store a view of constants once, in a buffer that outlives calls."""
        known = self._location(view)
        if known is not None:
            return known
        if not self.constants.decide([view]):
            return None
        key = _structure(view)
        if key in self.packed_structures:
            return self.packed_structures[key]
        spec, location = buffer_of(view.type, BufferKind.PACKED, len(self.buffers))
        self.buffers.append(spec)
        self.packed[view] = self.packed_structures[key] = location
        copy = None if rows is None else panel_copy(rows, self._stored, self.making.machine)
        if copy is None:
            nodes = () if view.node is None else (view.node,)
            launch = self._kernel(Work(storing(view), {view: location}, nodes))
        else:
            launch = self._panels(copy, location.buffer, view)
        self.prepare.append(launch)
        return location

    def _panels(self, copy: PanelCopy, packed: int, view: Value) -> Launch:
        nodes, buffers = (() if view.node is None else (view.node,)), (copy.source, packed)
        kernel = self._named(copy.kernel, nodes, buffers)
        return Launch(kernel.name, buffers, copy.dims, copy.tasks, copy.scratch, copy.work)

    # ---- ATen ------------------------------------------------------------------------------------

    def _call(self, call: Call) -> AtenCall:
        node = call.node
        attrs: dict[str, Any] = node.attrs
        operands = [self.placed.locations[operand].buffer for operand in node.operands]
        return AtenCall(
            attrs["target"],
            tuple(_argument(a, operands) for a in attrs["args"]),
            tuple((name, _argument(a, operands)) for name, a in attrs["kwargs"]),
            call.results,
            attrs["binds"] or (),
            node.origin,
            replace(launch_mark([node]), deterministic=node.mark.deterministic),
        )


def _origin(nodes: Iterable[Node]) -> str:
    return next((node.origin for node in nodes if node.origin), "")


def _structure(value: Value) -> tuple[object, ...]:
    """Return a key by which equal views of the same values are equal."""
    node = value.node
    if node is None or not OPS[node.op].transparent:
        return (id(value),)
    return (node.op, tuple(sorted(node.attrs.items(), key=str)), *map(_structure, node.operands))


def _argument(argument: Any, operands: list[int]) -> Any:
    """Replace ("tensor", operand number) by ("tensor", buffer number) in a node's argument."""
    if isinstance(argument, DType):
        return ("dtype", argument.name)
    if not isinstance(argument, tuple):
        return ("dim", str(argument)) if not isinstance(argument, _PLAIN) else argument
    if len(argument) == 2 and argument[0] == "tensor":
        return ("tensor", operands[argument[1]])
    if len(argument) == 2 and argument[0] in NUMBERS:
        kind, word = argument
        return NUMBERS[kind](word) if isinstance(word, int) else (kind, str(word))
    return tuple(_argument(a, operands) for a in argument)


_PLAIN = (bool, int, float, str, type(None))

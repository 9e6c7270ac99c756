"""A whole graph as kernels and a plan: groups in order, buffers, launches, the arena."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelmill.core.dim import Dim, Expr, of_atom, symbols
from kernelmill.core.dtype import DType
from kernelmill.core.machine import Machine
from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import DimInput, Graph, Input, Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.printer import print_kernel
from kernelmill.lower.driver.donation import heirs
from kernelmill.lower.driver.kernels import KernelCache, KernelMaker
from kernelmill.lower.driver.layouts import choose_layouts, last
from kernelmill.lower.driver.marks import launch_mark
from kernelmill.lower.driver.operators import Operator, isolate
from kernelmill.lower.driver.splice import Splice
from kernelmill.lower.driver.storage import Storage, base_of, layout_of
from kernelmill.lower.elements.axes import fresh_axes, is_view
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.elements.symbols import used_symbols
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.fuse import fuse
from kernelmill.lower.fusion.groups import Group, GroupKind
from kernelmill.lower.fusion.prepacked import lasting_values
from kernelmill.lower.schedule.search import Pick, ScheduleSearch
from kernelmill.lower.schedule.template import STATUS_BUFFER, UNNAMED
from kernelmill.lower.weights.dequantise import dequantised
from kernelmill.lower.weights.panel_copy import PanelCopy, panel_copy
from kernelmill.lower.weights.panel_views import Rows
from kernelmill.plan.arena import assign_with_heirs, lifetimes
from kernelmill.plan.ir import (
    AtenCall,
    DimResult,
    KernelRef,
    Launch,
    Plan,
    Result,
    Step,
    SymbolInput,
    TensorInput,
    TensorResult,
)  # fmt: skip


@dataclass
class Lowered:
    """What lowering makes: the plan, and the kernels it launches by name."""

    plan: Plan
    kernels: dict[str, Kernel] = field(default_factory=dict[str, Kernel])


@dataclass(frozen=True)
class NewKernel:
    """A kernel as soon as it is known: its text, and the shapes of the tensors that it is first
    launched with, in the order of its buffers. No text: the kernel was made for another program."""

    kernel: Kernel
    text: str
    ref: KernelRef
    shapes: tuple[tuple[Dim, ...], ...]


Announce = Callable[[NewKernel], None]
Choose = Callable[[Operator], "Chosen | None"]


@dataclass(frozen=True)
class Chosen:
    """How to run an operator: what one of its graphs was lowered to, and its symbols' values."""

    lowered: Lowered
    values: Mapping[str, Dim]


def lower_graph(
    graph: Graph,
    machine: Machine,
    separate: bool = False,
    choose: Choose | None = None,
    pick: Pick | None = None,
    cache: KernelCache | None = None,
    announce: Announce | None = None,
) -> Lowered:
    """Lower a verified graph; with `separate`, every operator to a kernel of its own.

    `choose` may give what an operator by itself was lowered to, which then takes its place; None
    for one that is to be lowered here. `pick` settles schedules in place of the cost model.
    `cache` is shared with other graphs lowered alike. Each kernel that is made here is told to
    `announce` as soon as it is, so that compiling it can begin. Raises UnsupportedError, naming the
    node, for what has no lowering.
    """
    return _Lowering(graph, machine, separate, choose, pick, cache, announce).run()


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        separate: bool,
        choose: Choose | None,
        pick: Pick | None,
        cache: KernelCache | None,
        announce: Announce | None,
    ) -> None:
        self.announce = announce
        self.choose = choose
        self.pick = pick
        self.cache = cache
        self.graph = replace(graph, nodes=list(graph.nodes), results=list(graph.results))
        self.separate = separate
        self.machine = machine
        self.storage = Storage()
        self.kernels: dict[str, Kernel] = {}
        self.refs: dict[str, KernelRef] = {}
        self.steps: list[Step] = []
        self.prepare: list[Launch] = []
        self.checks: list[str] = []
        self.checked = False
        self.images = set[Value]()
        self.packed: dict[tuple[object, ...], Value] = {}
        self.read: set[Value] = set()
        self.needed = {operand for node in graph.nodes for operand in node.operands}
        self.needed.update(result for result in graph.results if isinstance(result, Value))
        self.needed.update(source for _, source in graph.updates)
        updated = {target for target, _ in graph.updates}
        self.late = graph.late_symbols()
        self.constants = {
            entry.value
            for entry in graph.tensor_inputs()
            if entry.role != "user" and entry.value not in updated
        }
        self.parameters = {
            position
            for position, entry in enumerate(graph.inputs)
            if isinstance(entry, Input) and entry.value in self.constants
        }

    def run(self) -> Lowered:
        self.storage.add_inputs(self.graph)
        self._choose_layouts()
        sources = self._materialise_updates()
        forced = self._forced(sources)
        costs = Costs(self.graph, self.machine)
        order = {node: i for i, node in enumerate(self.graph.nodes)}
        within = apart = frozenset[Value]()
        if not self.separate:
            within = dequantised(self.graph, self.constants, forced | self.read)
            apart = frozenset(lasting_values(self.graph, self.constants) - within)
        shown = self.storage.borrowers.keys()
        self.fusion = fuse(self.graph, costs, forced, self.separate, within, apart, shown)
        self.read |= self.fusion.kept
        self.maker = KernelMaker(
            self.machine,
            self._stored,
            lambda value: self._is_constant([value]),
            self._pack,
            costs,
            order,
            within,
            None if self.pick is None else ScheduleSearch(self.pick),
            self.cache or KernelCache(),
        )
        for group in self.fusion.groups:
            self._lower_group(group)
        for (target, _), source in zip(self.graph.updates, sources, strict=True):
            self._copy_back(target, source)
        return Lowered(self._plan(), self.kernels)

    # ---- what must be in memory ------------------------------------------------------------------

    def _choose_layouts(self) -> None:
        """Images are stored channels last; results among them are copied into their own order."""
        if self.separate or self.choose is not None:
            return
        self.images = choose_layouts(self.graph, self.constants).values
        for number, result in enumerate(self.graph.results):
            if isinstance(result, Value) and result in self.images and not is_view(result):
                node = layout_of(result)
                self.graph.nodes.append(node)
                self.graph.results[number] = node.result

    def _materialise_updates(self) -> list[Value]:
        """For each update a value that a kernel computes: other values get a node of their own."""
        sources: list[Value] = []
        for _, value in self.graph.updates:
            node = value.node
            if node is None or OPS[node.op].transparent or OPS[node.op].kind is OpKind.SOURCE:
                node = layout_of(value)
                self.graph.nodes.append(node)
                value = node.result
                self.read.add(value)
            sources.append(value)
        return sources

    def _forced(self, updates: Iterable[Value]) -> set[Value]:
        wanted = [result for result in self.graph.results if isinstance(result, Value)]
        for node in self.graph.nodes:
            if OPS[node.op].kind is OpKind.ATEN:
                wanted += node.operands
        self.storage.own.update(wanted)
        for value in self.images:
            self.storage.reorder(value, last(value))
        self.tensors = {self.storage.lend(value) for value in wanted if value.node is not None}
        self._prefer_layouts()
        return self.tensors | set(updates)

    def _prefer_layouts(self) -> None:
        """What is read as a reshape of a permutation is stored in that order, so that reading it
        is one step after the other."""
        for node in self.graph.nodes:
            if node.op == "reshape" and self._permuted(node.operands[0]):
                self.storage.lend(node.result)

    def _permuted(self, value: Value) -> bool:
        while value.node is not None and OPS[value.node.op].rearranges:
            if value.node.op == "permute":
                return True
            value = value.node.operands[0]
        return False

    # ---- groups ----------------------------------------------------------------------------------

    def _lower_group(self, group: Group) -> None:
        if group.kind is GroupKind.ATEN:
            self._call_aten(group)
            return
        lasting = group.kind is GroupKind.NEST and self.tensors.isdisjoint(group.roots)
        constant = lasting and self._is_constant(group.roots)
        for value in group.roots:
            inplace = self._inplace_input(value)
            if inplace is not None:
                self.storage.locations[value] = self.storage.locations[inplace]
                continue
            own = value in self.tensors or self._sized_late(value)
            kind = "tensor" if own else ("packed" if constant else "arena")
            self.storage.store(value, kind)
        targets = {value: self.storage.locations[value] for value in group.roots}
        if group.kind is GroupKind.SCATTER:
            self._fill_before_scatter(group, targets)
        steps = self.prepare if constant else self.steps
        steps += self._launches(group, targets)

    def _sized_late(self, value: Value) -> bool:
        """Whether an operator finds the value's size: the arena is laid out before it runs."""
        return any(self.late & symbols(dim).keys() for dim in value.shape)

    def _inplace_input(self, value: Value) -> Value | None:
        """The input whose memory this value is written into, where a pass found that safe."""
        node = value.node
        if node is None or not node.attrs.get("inplace"):
            return None
        base = base_of(node.operands[0])
        return base if base.node is None else None

    def _is_constant(self, values: Iterable[Value]) -> bool:
        """Whether parameters alone decide these values, so that once is enough for all calls."""
        pending = list(values)
        seen: set[Value] = set()
        found = False
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            location, node = self._stored(value), value.node
            if location is not None:
                found = True
                if not self._constant_memory(value, location):
                    return False
            elif node is None or any(map(_symbolic, (value.shape, *node.attrs.values()))):
                return False
            else:
                pending += node.operands
        return found

    def _constant_memory(self, value: Value, location: Location) -> bool:
        packed = self.storage.buffers[location.buffer].kind == "packed"
        return packed or (value in self.constants and not symbols(location.elements))

    def _stored(self, value: Value) -> Location | None:
        """Where kernels read this value. Views are read through, but for those that fusion keeps
        and those that an update needs as they were before other updates."""
        if is_view(value) and value not in self.read:
            return None
        return self.storage.locations.get(value)

    def _launches(self, group: Group, targets: dict[Value, Location]) -> list[Launch]:
        """The launches that do a group's work: as chosen for it, else one of a kernel made here."""
        chosen = None
        if self.choose is not None:
            own = {*group.internal, *group.roots}
            operator = isolate(
                group,
                self.maker.nodes(group),
                targets,
                lambda value: None if value in own else self._stored(value),
                self._is_parameter,
            )
            chosen = None if operator is None else self.choose(operator)
            if operator is not None and chosen is not None:
                return self._spliced(operator, chosen, self.maker.nodes(group))
        return [self._kernel(group, targets)]

    def _is_parameter(self, buffer: int) -> bool:
        spec = self.storage.buffers[buffer]
        return spec.kind == "input" and spec.source in self.parameters

    def _spliced(self, operator: Operator, chosen: Chosen, nodes: Sequence[Node]) -> list[Launch]:
        splice = Splice(chosen.lowered.plan, chosen.values, operator.inputs, operator.outputs)
        self.storage.buffers += splice.buffers(len(self.storage.buffers))
        self.prepare += splice.launches(chosen.lowered.plan.prepare)
        launches = splice.launches(chosen.lowered.plan.steps, launch_mark(nodes))
        if any(STATUS_BUFFER in launch.buffers for launch in launches):
            self._note_check(nodes)
        for name, kernel in chosen.lowered.kernels.items():
            self.kernels.setdefault(name, kernel)
        origin = next((node.origin for node in nodes if node.origin), "")
        for ref in chosen.lowered.plan.kernels:
            self.refs.setdefault(ref.name, replace(ref, origin=origin))
        return launches

    def _kernel(self, group: Group, targets: dict[Value, Location]) -> Launch:
        made = self.maker.make(group, targets)
        nodes = self.maker.nodes(group)
        if STATUS_BUFFER in made.buffers:
            self._note_check(nodes)
        kernel = self._named(made.kernel, nodes, made.buffers)
        dims = tuple(of_atom(symbol) for symbol in kernel.dims)
        return Launch(
            kernel.name,
            made.buffers,
            dims,
            kernel.tasks,
            kernel.scratch,
            made.work,
            launch_mark(nodes),
        )

    def _note_check(self, nodes: Iterable[Node]) -> None:
        self.checked = True
        checked = (OpKind.GATHER, OpKind.SCATTER, OpKind.CONTRACT)
        origins = {n.origin for n in nodes if OPS[n.op].kind in checked and n.origin}
        self.checks = sorted({*self.checks, *origins})

    def _named(self, kernel: Kernel, nodes: Iterable[Node], buffers: Iterable[int]) -> Kernel:
        """The kernel under a name made of its text, so that equal kernels are one. Its own symbols
        stay, for an equal kernel may be about other sizes. `buffers` are those of a launch."""
        text = ""
        if kernel.name == UNNAMED:
            used = used_symbols(kernel)
            kernel.dims = [s for name, s in sorted(self.graph.symbols.items()) if name in used]
            text = print_kernel(kernel, name=False)
            kernel.name = "km_" + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        if kernel.name not in self.kernels:
            self.kernels[kernel.name] = kernel
            origin = next((node.origin for node in nodes if node.origin), "")
            operators = tuple(node.op for node in nodes)
            ref = KernelRef(kernel.name, kernel.type, kernel.name, operators, origin)
            self.refs[kernel.name] = ref
            if self.announce is not None:
                shapes = tuple(self.storage.buffers[n].shape if n >= 0 else (1,) for n in buffers)
                self.announce(NewKernel(kernel, text, ref, shapes))
        return kernel

    def _pack(self, view: Value, rows: Rows | None = None) -> Location | None:
        """Store a view of constants once, in a buffer that outlives calls."""
        known = self.storage.locations.get(view)
        if known is not None:
            return known
        if not self._is_constant([view]):
            return None
        key = _structure(view)
        if key in self.packed:
            return self.storage.locations[self.packed[key]]
        location = self.storage.add(view, "packed", view.type)
        self.packed[key] = view
        copy = None if rows is None else panel_copy(rows, self._stored, self.machine)
        if copy is not None:
            self.prepare.append(self._panels(copy, location.buffer, view))
            return location
        group = Group(GroupKind.NEST)
        group.outer, index = fresh_axes(view.shape, "d", group.extents)
        group.roots[view] = index
        self.prepare.append(self._kernel(group, {view: location}))
        return location

    def _panels(self, copy: PanelCopy, packed: int, view: Value) -> Launch:
        nodes, buffers = (() if view.node is None else (view.node,)), (copy.source, packed)
        kernel = self._named(copy.kernel, nodes, buffers)
        return Launch(kernel.name, buffers, copy.dims, copy.tasks, copy.scratch, copy.work)

    def _copy_back(self, target: Value, source: Value) -> None:
        """Write an updated input, after everything that reads its old contents."""
        where = self.storage.locations[target]
        if self.storage.locations[source].buffer != where.buffer:
            self._copy(source, where)

    def _fill_before_scatter(self, group: Group, targets: dict[Value, Location]) -> None:
        """A scatter writes over its first operand: that must be in the target, unless it is."""
        node = group.seed
        assert node is not None
        if self._inplace_input(node.result) is None:
            self._copy(node.operands[0], targets[node.result])

    def _copy(self, source: Value, where: Location) -> None:
        node = layout_of(source)
        group = Group(GroupKind.NEST)
        group.outer, index = fresh_axes(source.shape, "d", group.extents)
        group.roots[node.result] = index
        self.steps += self._launches(group, {node.result: where})

    # ---- ATen ------------------------------------------------------------------------------------

    def _call_aten(self, group: Group) -> None:
        node = group.seed
        assert node is not None
        # What nobody reads is not kept, and need not be what torch traced.
        results = [
            self.storage.add(value, "tensor", value.type).buffer if value in self.needed else -1
            for value in node.results
        ]
        attrs: dict[str, Any] = node.attrs
        operands = [self.storage.locations[operand].buffer for operand in node.operands]
        self.steps.append(
            AtenCall(
                attrs["target"],
                tuple(_argument(a, operands) for a in attrs["args"]),
                tuple((name, _argument(a, operands)) for name, a in attrs["kwargs"]),
                tuple(results),
                attrs["binds"] or (),
                node.origin,
                launch_mark([node]),
            )
        )

    # ---- the plan --------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        total = self._place_in_arena()
        inputs = tuple(self._input(entry) for entry in self.graph.inputs)
        return Plan(
            self.graph.name,
            tuple(self.graph.symbols.values()),
            inputs,
            tuple(self.storage.buffers),
            tuple(self.prepare),
            tuple(self.steps),
            tuple(self._result(result) for result in self.graph.results),
            tuple(self.refs.values()),
            total,
            (_check_message(self.checks),) if self.checked else (),
            equations=tuple(self.graph.equations),
        )

    def _input(self, entry: Input | DimInput) -> TensorInput | SymbolInput:
        if isinstance(entry, DimInput):
            return SymbolInput(entry.symbol.name)
        kind = entry.value.type
        updated = any(target is entry.value for target, _ in self.graph.updates)
        return TensorInput(
            entry.value.name, kind.dtype, kind.shape, kind.memory_strides, entry.role, updated
        )

    def _result(self, result: object) -> Result:
        if isinstance(result, Value):
            stored = self.storage.borrowers.get(result, result)
            location = self.storage.locations[
                result if result in self.storage.locations else stored
            ]
            return TensorResult(location.buffer)
        if result is None:
            return None
        dim: Any = result
        return DimResult(dim)

    def _place_in_arena(self) -> Dim:
        buffers = self.storage.buffers
        placed = lifetimes(self.steps, buffers)
        arena = assign_with_heirs(placed, heirs(self.steps, self.kernels, placed, buffers))
        for number, offset in zip(placed, arena.offsets, strict=True):
            buffers[number] = replace(buffers[number], offset=offset)
        return arena.bytes


def _symbolic(attr: object) -> bool:
    """Whether a symbol occurs in a shape or an attribute."""
    if isinstance(attr, int):
        return False
    if isinstance(attr, tuple):
        parts: tuple[object, ...] = attr
        return any(map(_symbolic, parts))
    return isinstance(attr, Expr)


def _structure(value: Value) -> tuple[object, ...]:
    """A key by which equal views of the same values are equal."""
    node = value.node
    if node is None or not OPS[node.op].transparent:
        return (id(value),)
    return (node.op, tuple(sorted(node.attrs.items(), key=str)), *map(_structure, node.operands))


def _argument(argument: Any, operands: list[int]) -> Any:
    """A node's ("tensor", operand number) arguments as ("tensor", buffer number)."""
    if isinstance(argument, DType):
        return ("dtype", argument.name)
    if not isinstance(argument, tuple):
        return ("dim", str(argument)) if not isinstance(argument, _PLAIN) else argument
    if len(argument) == 2 and argument[0] == "tensor":
        return ("tensor", operands[argument[1]])
    return tuple(_argument(a, operands) for a in argument)


_PLAIN = (bool, int, float, str, type(None))


def _check_message(origins: list[str]) -> str:
    where = f" at {' or '.join(origins)}" if origins else ""
    return f"index out of range{where}: an index tensor holds a value outside its dimension"

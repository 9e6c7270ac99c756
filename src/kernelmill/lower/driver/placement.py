"""Placement of values: which are stored, a buffer for each, and the launch that fills it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import symbols
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Graph, Input, Node, TensorType, Value
from kernelmill.lower.driver.aliases import Aliases, base_of, own_strides
from kernelmill.lower.driver.constants import Constants
from kernelmill.lower.driver.prepare import Prepared, layout_of
from kernelmill.lower.elements.axes import is_view
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.elements.strided import span
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.fuse import fuse
from kernelmill.lower.fusion.groups import FusionGroup, GroupKind, modifications, storing
from kernelmill.lower.fusion.prepacked import Prepacked, kept_constants, prepacked_constants
from kernelmill.lower.weights.dequantise import dequantised
from kernelmill.plan.ir import BufferKind, BufferSpec


@dataclass(frozen=True)
class Grouping:
    """Groups in an order in which they can run.

    stored_views         views that their readers take from memory; others are read through
    dequantised_in_place values that products compute from smaller ones as they read them
    costs                of the graph's values
    folded               what products or reductions make of parameters, when weights are packed
    """

    groups: tuple[FusionGroup, ...]
    stored_views: frozenset[Value]
    dequantised_in_place: frozenset[Value]
    costs: Costs
    folded: frozenset[Value]

    def reads(self, value: Value) -> bool:
        """Return whether kernels load this value from memory rather than read through a view."""
        return not is_view(value) or value in self.stored_views


def group_nodes(prepared: Prepared, aliases: Aliases, machine: Machine, separate: bool) -> Grouping:
    """Group the nodes for a machine; with `separate` each operator is a group of its own."""
    graph, constants = prepared.graph, prepared.constants
    stored = aliases.tensors | set(prepared.update_sources)
    costs = Costs(graph, machine)
    in_place = kept = frozenset[Value]()
    prepacked = Prepacked()
    in_memory = stored | prepared.stored_views
    if not separate:
        kept = kept_constants(graph, constants) - stored
        in_place = dequantised(graph, constants | kept, in_memory)
        prepacked = prepacked_constants(graph, constants)
    shared, unstored = aliases.bases.keys(), in_place | modifications(graph, in_memory)
    prepacked = Prepacked(prepacked.alone - unstored, prepacked.folded)
    forced = stored | prepared.columns
    fusion = fuse(graph, costs, forced, separate, unstored, prepacked, shared, kept)
    views = prepared.stored_views | fusion.kept
    return Grouping(fusion.groups, views, in_place, costs, prepacked.folded)


@dataclass(frozen=True, eq=False)
class Work:
    """The work of one kernel: a group, the targets of its roots, its nodes in program order. With
    `constant` it runs when weights are packed, since it depends on parameters alone."""

    group: FusionGroup
    targets: Mapping[Value, Location]
    nodes: tuple[Node, ...]
    constant: bool = False


@dataclass(frozen=True, eq=False)
class Call:
    """An operator that runs as itself, and the buffers of its results, -1 for unread ones."""

    node: Node
    results: tuple[int, ...]


@dataclass(frozen=True)
class Placed:
    """All steps in order, and the memory of the values that they read and write.

    locations  of each value that can be read from memory
    """

    prepared: Prepared
    aliases: Aliases
    grouping: Grouping
    buffers: tuple[BufferSpec, ...]
    locations: Mapping[Value, Location]
    steps: tuple[Work | Call, ...]

    def stored(self, value: Value) -> Location | None:
        """Return the memory that kernels read this value from; None if it is read through."""
        return self.locations.get(value) if self.grouping.reads(value) else None

    def is_parameter(self, buffer: int) -> bool:
        """Check that a buffer is a parameter that no update writes to."""
        spec = self.buffers[buffer]
        return spec.kind == BufferKind.INPUT and spec.source in self.prepared.parameters


def place(prepared: Prepared, aliases: Aliases, grouping: Grouping) -> Placed:
    """Allocate memory for the values that the groups store."""
    return _Placing(prepared, aliases, grouping).run()


class _Placing:
    def __init__(self, prepared: Prepared, aliases: Aliases, grouping: Grouping) -> None:
        self.prepared, self.aliases, self.grouping = prepared, aliases, grouping
        self.graph: Graph = prepared.graph
        self.late = self.graph.late_symbols()
        self.order = {node: i for i, node in enumerate(self.graph.nodes)}
        self.read = {operand for node in self.graph.nodes for operand in node.operands}
        self.read.update(value for value in self.graph.results if isinstance(value, Value))
        self.read.update(source for _, source in self.graph.updates)
        self.buffers: list[BufferSpec] = []
        self.locations: dict[Value, Location] = {}
        self.steps: list[Work | Call] = []
        self.constants = Constants(prepared.constants, self.buffers, self._stored)

    def run(self) -> Placed:
        for position, entry in enumerate(self.graph.inputs):
            if isinstance(entry, Input):
                self._add(entry.value, BufferKind.INPUT, entry.value.type, position)
        for group in self.grouping.groups:
            if group.kind is GroupKind.ATEN:
                self._call(group)
            else:
                self._group(group)
        updates = zip(self.graph.updates, self.prepared.update_sources, strict=True)
        for (target, _), source in updates:
            self._write_back(target, source)
        return Placed(
            self.prepared, self.aliases, self.grouping, tuple(self.buffers), self.locations,
            tuple(self.steps),
        )  # fmt: skip

    # ---- steps -----------------------------------------------------------------------------------

    def _call(self, group: FusionGroup) -> None:
        # What nobody reads is not kept, and need not be what torch traced.
        assert group.seed is not None
        results = (
            self._add(value, BufferKind.TENSOR, value.type).buffer if value in self.read else -1
            for value in group.seed.results
        )
        self.steps.append(Call(group.seed, tuple(results)))

    def _group(self, group: FusionGroup) -> None:
        constant = self._is_packable(group) and self.constants.decide(group.roots)
        for value in group.roots:
            overwritten = _overwritten_input(value)
            if overwritten is not None:
                self.locations[value] = self.locations[overwritten]
                continue
            own = value in self.aliases.tensors or self._sized_late(value)
            kind = BufferKind.PACKED if constant else BufferKind.ARENA
            self._store(value, BufferKind.TENSOR if own else kind)
        targets = {value: self.locations[value] for value in group.roots}
        if group.kind is GroupKind.SCATTER:
            self._fill_before_scatter(group, targets)
        self.steps.append(self._work(group, targets, constant))

    def _is_packable(self, group: FusionGroup) -> bool:
        """Check that a group may run when weights are packed: its roots are read by this program's
        kernels only, and its kernel needs no memory that only calls have."""
        folded = group.kind.is_product and group.roots.keys() <= self.grouping.folded
        known = group.kind is GroupKind.NEST or folded
        return known and self.aliases.tensors.isdisjoint(group.roots)

    def _work(
        self, group: FusionGroup, targets: Mapping[Value, Location], constant: bool = False
    ) -> Work:
        nodes = sorted(group.nodes, key=lambda node: self.order.get(node, 0))
        return Work(group, targets, tuple(nodes), constant)

    def _fill_before_scatter(self, group: FusionGroup, targets: Mapping[Value, Location]) -> None:
        """Copy the first operand of a scatter to its target, unless it is there already."""
        node = group.seed
        assert node is not None
        if _overwritten_input(node.result) is None:
            self._copy(node.operands[0], targets[node.result])

    def _write_back(self, target: Value, source: Value) -> None:
        """Copy an updated input's new contents into it, after all reads of the old ones."""
        where = self.locations[target]
        if self.locations[source].buffer != where.buffer:
            self._copy(source, where)

    def _copy(self, source: Value, where: Location) -> None:
        result = layout_of(source).result
        self.steps.append(self._work(storing(result), {result: where}))

    # ---- memory ----------------------------------------------------------------------------------

    def _sized_late(self, value: Value) -> bool:
        """Check that a size of the value is found by an operator, after the arena is laid out."""
        return any(self.late & symbols(dim).keys() for dim in value.shape)

    def _stored(self, value: Value) -> Location | None:
        return self.locations.get(value) if self.grouping.reads(value) else None

    def _store(self, value: Value, kind: BufferKind) -> None:
        """Add a buffer for a computed value, in the shape of its alias, if any."""
        view = self.aliases.stored_as.get(value)
        if view is None:
            self._add(value, kind, value.type)
            return
        location = self._add(value, kind, view.type)
        strides = own_strides(value, view, location.strides)
        assert strides is not None
        self.locations[view] = location
        self.locations[value] = replace(location, strides=strides)

    def _add(self, value: Value, kind: BufferKind, type: TensorType, source: int = -1) -> Location:
        """Add a buffer with this type's shape and strides for the value. The arena counts elements:
        its buffers, and packed ones, have no gaps."""
        gaps = span(type.shape, type.memory_strides) != type.elements
        if gaps and kind in (BufferKind.ARENA, BufferKind.PACKED):
            type = replace(type, strides=None)
        spec, location = buffer_of(type, kind, len(self.buffers), source)
        self.buffers.append(spec)
        self.locations[value] = location
        return location


def buffer_of(
    type: TensorType, kind: BufferKind, number: int, source: int = -1
) -> tuple[BufferSpec, Location]:
    """Return a buffer of this number for a value of this type, and the value's location in it."""
    strides = type.memory_strides
    spec = BufferSpec(kind, type.dtype, type.shape, strides, source)
    return spec, Location(number, type.dtype, strides, span(type.shape, strides))


def _overwritten_input(value: Value) -> Value | None:
    """Return the input whose memory the value is written into, if a pass found that safe."""
    node = value.node
    if node is None or not node.attrs.get("inplace"):
        return None
    base = base_of(node.operands[0])
    return base if base.node is None else None

"""Where values live: plan buffers, their kinds and strides, and which views share memory.

A value that must exist in memory with a shape of its own (a result, an operand of ATen) is often a
reshape or a permutation of something a kernel computes. Where the elements then lie in the same
order, both share one buffer and nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kernelmill.core.dim import Dim, linear_part, recombine
from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Graph, Input, Node, TensorType, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements import views
from kernelmill.lower.elements.axes import fresh_axes
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.elements.strided import span
from kernelmill.lower.elements.views import Index
from kernelmill.plan.ir import BufferSpec


@dataclass
class Storage:
    """The buffers of a program as lowering assigns them.

    locations  every value that can be read from memory
    own        values that need memory of their own shape: they lend it to nobody
    lenders    for a computed value whose memory has the shape of a view of it: that view
    borrowers  the other way round
    """

    buffers: list[BufferSpec] = field(default_factory=list[BufferSpec])
    locations: dict[Value, Location] = field(default_factory=dict[Value, Location])
    own: set[Value] = field(default_factory=set[Value])
    lenders: dict[Value, Value] = field(default_factory=dict[Value, Value])
    borrowers: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def add_inputs(self, graph: Graph) -> None:
        """A buffer for each tensor argument; its source is the argument's position."""
        for position, entry in enumerate(graph.inputs):
            if isinstance(entry, Input):
                self.add(entry.value, "input", entry.value.type, position)

    def add(self, value: Value, kind: str, type: TensorType, source: int = -1) -> Location:
        """A new buffer with this type's shape and strides, and the value in it."""
        self.buffers.append(BufferSpec(kind, type.dtype, type.shape, type.memory_strides, source))
        location = Location(
            len(self.buffers) - 1,
            type.dtype,
            type.memory_strides,
            span(type.shape, type.memory_strides),
        )
        self.locations[value] = location
        return location

    def lend(self, value: Value) -> Value:
        """What to store so that `value` is in memory: itself, or what it shares memory with."""
        if value in self.borrowers:
            return self.borrowers[value]
        base = base_of(value)
        if base is value or base.node is None or base in self.lenders or base in self.own:
            return value
        definition = OPS[base.node.op]
        if definition.transparent or definition.kind in (OpKind.ATEN, OpKind.SOURCE):
            return value
        if own_strides(base, value) is None:
            return value
        self.lenders[base] = value
        self.borrowers[value] = base
        return base

    def reorder(self, value: Value, view: Value) -> None:
        """Store a computed value in the order of a view of it, unless memory of its own shape is
        asked of it."""
        if value not in self.own and value not in self.lenders:
            self.lenders[value] = view

    def store(self, value: Value, kind: str) -> Location:
        """A buffer for a computed value, shaped as what borrows it where something does."""
        borrower = self.lenders.get(value)
        if borrower is None:
            return self.add(value, kind, value.type)
        strides = own_strides(value, borrower)
        assert strides is not None
        location = self.add(value, kind, borrower.type)
        self.locations[borrower] = location
        self.locations[value] = replace(location, strides=strides)
        return self.locations[value]


def base_of(value: Value) -> Value:
    """What a chain of layouts, reshapes and permutes starts from."""
    while value.node is not None and OPS[value.node.op].rearranges:
        value = value.node.operands[0]
    return value


def own_strides(base: Value, borrower: Value) -> tuple[Dim, ...] | None:
    """The strides of `base` in the memory of `borrower`, a view of it; None when it has none."""
    axes, index = fresh_axes(base.shape, "x", {})
    at = _forward(base, borrower, index)
    address: Dim = 0
    for position, stride in zip(at, borrower.type.memory_strides, strict=True):
        address = address + position * stride
    address = recombine(address)
    found: dict[str, Dim] = {}
    for axis in axes:
        linear = linear_part(address, axis.name)
        if linear is None:
            return None
        found[axis.name], address = linear
    if address != 0:
        return None
    names = iter(axis.name for axis in axes)
    return tuple(1 if size == 1 else found[next(names)] for size in base.shape)


def _forward(base: Value, view: Value, index: Index) -> Index:
    """Where the element `index` of `base` stands in a view made of layouts, reshapes, permutes."""
    node = view.node
    if view is base or node is None:
        return index
    operand = node.operands[0]
    below = _forward(base, operand, index)
    if node.op == "reshape":
        return views.reshape_index(below, operand.shape, view.shape)
    if node.op == "permute":
        dims = node.attrs["dims"]
        assert isinstance(dims, tuple)
        return tuple(below[d] for d in dims if isinstance(d, int))
    return below


def layout_of(value: Value) -> Node:
    """A node that is the value itself, made a member of the program so that it can be stored."""
    node = Node("layout", (value,), {"strides": value.type.memory_strides})
    kind = TensorType(value.dtype, value.shape, value.type.strides)
    node.results = (Value(f"{value.name}_stored", kind, node),)
    return node

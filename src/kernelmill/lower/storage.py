"""Where values live: plan buffers, their kinds and strides, and which views share memory.

A value that must exist in memory with a shape of its own (a result, an operand of ATen) is often a
reshape or a permutation of something a kernel computes. Where the elements then lie in the same
order, both share one buffer and nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kernelmill.core.dim import Dim, recombine
from kernelmill.graph.ir import Graph, Input, Node, TensorType, Value, row_major
from kernelmill.graph.ops import OPS
from kernelmill.lower import views
from kernelmill.lower.elements import Location
from kernelmill.lower.groups import fresh_axes
from kernelmill.lower.views import Index
from kernelmill.plan.ir import BufferSpec


@dataclass
class Storage:
    """The buffers of a program as lowering assigns them.

    locations  every value that can be read from memory
    shapes     for a computed value that lends its memory to a result: that result's type
    """

    buffers: list[BufferSpec] = field(default_factory=list[BufferSpec])
    locations: dict[Value, Location] = field(default_factory=dict[Value, Location])
    lenders: dict[Value, Value] = field(default_factory=dict[Value, Value])
    borrowers: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def add_inputs(self, graph: Graph) -> None:
        """A buffer for each tensor argument; its source is the argument's position."""
        for position, entry in enumerate(graph.inputs):
            if isinstance(entry, Input):
                self.add(entry.value, "input", entry.value.type, position)

    def add(self, value: Value, kind: str, type: TensorType, source: int = -1) -> Location:
        """A new buffer with this type's shape and strides, and the value in it."""
        self.buffers.append(
            BufferSpec(kind, type.dtype, type.shape, type.memory_strides, source)
        )
        location = Location(
            len(self.buffers) - 1, type.dtype, type.memory_strides, span(type.shape, type.memory_strides)
        )
        self.locations[value] = location
        return location

    def lend(self, value: Value) -> Value:
        """The value to store so that `value` is in memory: itself, or what it shares memory with."""
        base, follows = base_of(value)
        if base is value or base.node is None or base in self.lenders:
            return self.borrowers.get(value, value)
        if OPS[base.node.op].kind in ("aten", "source", "view", "layout") or not follows:
            return value
        self.lenders[base] = value
        self.borrowers[value] = base
        return base

    def store(self, value: Value, kind: str) -> Location:
        """A buffer for a computed value, shaped as what borrows it where something does."""
        borrower = self.lenders.get(value)
        if borrower is None:
            return self.add(value, kind, value.type)
        location = self.add(value, kind, borrower.type)
        strides = own_strides(value, borrower)
        self.locations[value] = replace(location, strides=strides)
        self.locations[borrower] = location
        return self.locations[value]


def span(shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> Dim:
    """Number of elements from the first to the last, 0 when there are none."""
    if any(size == 0 for size in shape):
        return 0
    reach: Dim = 1
    for size, stride in zip(shape, strides, strict=True):
        reach = reach + (size - 1) * stride
    return reach


def base_of(value: Value) -> tuple[Value, bool]:
    """What a chain of layouts, reshapes and permutes starts from, and whether the elements of
    `value` can lie in the base's memory."""
    node = value.node
    base, only_layout = value, True
    while node is not None and node.op in ("layout", "reshape", "permute"):
        only_layout = only_layout and node.op == "layout"
        base = node.operands[0]
        node = base.node
    if base is value:
        return value, True
    return base, only_layout or _same_order(value, base)


def own_strides(base: Value, borrower: Value) -> tuple[Dim, ...]:
    """The base's strides in the borrower's memory."""
    if base.shape == borrower.shape and _only_layouts(borrower, base):
        return borrower.type.memory_strides
    return row_major(base.shape)


def _only_layouts(value: Value, base: Value) -> bool:
    while value is not base:
        node = value.node
        if node is None or node.op != "layout":
            return False
        value = node.operands[0]
    return True


def _same_order(value: Value, base: Value) -> bool:
    _, index = fresh_axes(value.shape, "x", {})
    wanted = _address(index, value.type.memory_strides)
    current, at = value, index
    while current is not base:
        assert current.node is not None
        (source,) = views.sources(current.node, at)
        current, at = source.operand, source.index
    return _address(at, row_major(base.shape)) == wanted


def _address(index: Index, strides: tuple[Dim, ...]) -> Dim:
    total: Dim = 0
    for position, stride in zip(index, strides, strict=True):
        total = total + position * stride
    return recombine(total)


def layout_of(value: Value) -> Node:
    """A node that is the value itself, made a member of the program so that it can be stored."""
    node = Node("layout", (value,), {"strides": value.type.memory_strides})
    kind = TensorType(value.dtype, value.shape, value.type.strides)
    node.results = (Value(f"{value.name}_stored", kind, node),)
    return node

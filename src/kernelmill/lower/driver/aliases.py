"""Aliases: values that share memory with a view of them.

A value that must exist in memory in a given shape (a result, an operand of ATen) is often a reshape
or a permutation of a kernel's result. If both have their elements in the same order, they share one
buffer and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, linear_part
from kernelmill.graph.ir import Graph, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.driver.prepare import Prepared, is_channels_last, last
from kernelmill.lower.elements import views
from kernelmill.lower.elements.axes import fresh_axes
from kernelmill.lower.elements.views import Index


@dataclass(frozen=True)
class Aliases:
    """The aliases of a graph.

    stored_as  for a computed value that is stored in the shape of a view of it: that view
    bases      the inverse: for a view, the computed value whose memory it shares
    tensors    values stored as tensors of their own: results, and operands of ATen
    """

    stored_as: Mapping[Value, Value]
    bases: Mapping[Value, Value]
    tensors: frozenset[Value]


def find_aliases(prepared: Prepared) -> Aliases:
    """Find the aliases of a graph: for results, operands of ATen and channels-last images."""
    graph = prepared.graph
    wanted = [result for result in graph.results if isinstance(result, Value)]
    for node in graph.nodes:
        if OPS[node.op].kind is OpKind.ATEN:
            wanted += node.operands
    finder = AliasFinder(wanted)
    for value in wanted:
        if is_channels_last(value):
            finder.alias(value)
    for value in prepared.channels_last:
        finder.reorder(value, last(value))
    tensors = frozenset(finder.alias(value) for value in wanted if value.node is not None)
    _store_as_read(graph, finder)
    return Aliases(finder.stored_as, finder.bases, tensors)


def _store_as_read(graph: Graph, finder: AliasFinder) -> None:
    """Store values that are read as a reshape of a permutation in permuted order, so that they are
    read sequentially."""
    for node in graph.nodes:
        if node.op == "reshape" and _permuted(node.operands[0]):
            finder.alias(node.result)


def _permuted(value: Value) -> bool:
    while value.node is not None and OPS[value.node.op].rearranges:
        if value.node.op == "permute":
            return True
        value = value.node.operands[0]
    return False


class AliasFinder:
    """Collects aliases. Values in `own` need memory of their own shape, which no alias may share;
    earlier requests win."""

    def __init__(self, own: Iterable[Value] = ()) -> None:
        self.stored_as: dict[Value, Value] = {}
        self.bases: dict[Value, Value] = {}
        self._own = frozenset(own)

    def alias(self, value: Value) -> Value:
        """Return the value to store so that `value` is in memory: itself, or its base."""
        if value in self.bases:
            return self.bases[value]
        base = base_of(value)
        if base is value or base.node is None or base in self.stored_as or base in self._own:
            return value
        definition = OPS[base.node.op]
        if definition.transparent or definition.kind in (OpKind.ATEN, OpKind.SOURCE):
            return value
        if base.node.attrs.get("inplace"):  # it lies where an argument does
            return value
        if own_strides(base, value) is None:
            return value
        self.stored_as[base] = value
        self.bases[value] = base
        return base

    def reorder(self, value: Value, view: Value) -> None:
        """Store a computed value in the order of a view of it, unless it needs memory of its own
        shape."""
        if value not in self._own and value not in self.stored_as:
            self.stored_as[value] = view


def base_of(value: Value) -> Value:
    """Return the value that a chain of layouts, reshapes and permutes starts from."""
    while value.node is not None and OPS[value.node.op].rearranges:
        value = value.node.operands[0]
    return value


def own_strides(
    base: Value, view: Value, strides: Sequence[Dim] | None = None
) -> tuple[Dim, ...] | None:
    """Return the strides of `base` in the memory of a view of it, None where none express it. The
    view's strides are those of its type unless given."""
    axes, index = fresh_axes(base.shape, "x", {})
    at = _forward(base, view, index)
    address = views.address(at, strides or view.type.memory_strides)
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
    """Map an index of `base` to that of a view made of layouts, reshapes and permutes."""
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

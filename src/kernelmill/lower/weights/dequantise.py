"""Weights that a graph makes from smaller numbers: int8 or packed int4 with scales, or half types.

They are never stored. The product that reads such a weight computes it in registers from its
leaves: the parameters behind it, packed in panels.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import pairwise

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, Op, as_sym, product, substitute, sym, symbols
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements.domain import IndexAccess
from kernelmill.lower.elements.views import Index
from kernelmill.lower.emit.packed import panel_shape
from kernelmill.lower.weights.panel_views import padded

# ---- which weights --------------------------------------------------------------------------


def dequantised(
    graph: Graph, constants: AbstractSet[Value], stored: AbstractSet[Value]
) -> frozenset[Value]:
    """Return the values between leaves and products: none is in `stored`, nothing else reads them,
    and the leaves, all of them in `constants`, have fewer bytes than the weight."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for operand in node.operands:
            readers.setdefault(operand, []).append(node)
    products = [node for node in graph.nodes if node.op == "matmul"]
    weights = {weight for weight in map(weight_of, products) if weight is not None}
    chains = {weight: _chain(weight, constants) for weight in weights}
    known = {weight: chain for weight, chain in chains.items() if chain}
    while True:
        inside = frozenset[Value]().union(*known.values())
        lost = [
            weight
            for weight, chain in known.items()
            if any(value in stored or _leaves(value, readers[value], inside) for value in chain)
        ]
        if not lost:
            return inside
        for weight in lost:
            del known[weight]


def weight_of(node: Node) -> Value | None:
    """Return the weight of a matmul, or batch of weights: the operand along whose columns vectors
    run. None where the batches of the operands differ."""
    a, b = node.operands
    if a.shape[:-2] != b.shape[:-2]:
        return None
    return a if b.shape[-1] == 1 and a.shape[-2] != 1 else b


def _leaves(value: Value, readers: Iterable[Node], inside: AbstractSet[Value]) -> bool:
    """Return whether the value has a reader other than these chains and their products."""
    return any(
        node.result not in inside and not (node.op == "matmul" and weight_of(node) is value)
        for node in readers
    )


def _chain(weight: Value, constants: AbstractSet[Value]) -> frozenset[Value] | None:
    """Return the values between the weight and its leaves; None if it is not dequantised."""
    chain: set[Value] = set()
    leaves: set[Value] = set()
    pending = [weight]
    while pending:
        value = pending.pop()
        node = value.node
        if value in constants:
            leaves.add(value)
        elif node is None or not (_is_view(node) or OPS[node.op].unpacks):
            return None
        elif value not in chain:
            chain.add(value)
            pending += [v for v in node.operands if v.node is None or v.node.op != "full"]
    if not any(value.node is not None and not _is_view(value.node) for value in chain):
        return None
    if not all(_in_batch(leaf, weight) for leaf in leaves):
        return None
    have, want = _bytes(weight), sum(map(_bytes, leaves))
    fits = isinstance(have, int) and isinstance(want, int) and want < have
    return frozenset(chain) if fits else None


def _in_batch(leaf: Value, weight: Value) -> bool:
    """Return whether a leaf has the weight's batch as dims of its own, or is small: panels are made
    of the columns of one weight after the other."""
    batch = weight.shape[:-2]
    numbers, all_numbers = product(leaf.shape), product(weight.shape)
    small = isinstance(numbers, int) and isinstance(all_numbers, int) and numbers * 8 <= all_numbers
    return small or leaf.shape[: len(batch)] == batch


def _is_view(node: Node) -> bool:
    return OPS[node.op].transparent and not OPS[node.op].fills


def _bytes(value: Value) -> Dim:
    return product(value.shape) * value.dtype.bytes


# ---- how they are read ----------------------------------------------------------------------


COLUMN, DEPTH = "column", "depth"
"""Symbols for n and k in the indices of a weight's operands."""


def depth_axes(accesses: Iterable[IndexAccess], size: int) -> tuple[int, ...]:
    """Cut the reduction axis so that factors of a group of k have an axis of their own.

    Groups are told by divisions of k in the indices: by 128, say, for scales, and by 2 for int4.
    """
    cuts: list[int] = []
    found = {d for a in accesses for i in _indices(a) for d in _divisors(i)}
    for divisor in sorted(found, reverse=True):
        if 1 < divisor < size and (cuts[-1] if cuts else size) % divisor == 0:
            cuts.append(divisor)
    return tuple(high // low for high, low in pairwise((size, *cuts, 1)))


def is_one_group(axes: tuple[int, ...]) -> bool:
    """Return whether these axes cut k into pairs at the most."""
    return len(axes) == 1 or axes[1:] == (2,)


def changes_only_between(accesses: Iterable[IndexAccess], group: int, size: int) -> bool:
    """Return whether the accesses are the same for all k of each `group` of the `size`."""
    first, inner = sym("group", 0, size // group - 1), sym("inside", 0, group - 1)
    read = [substitute(i, {DEPTH: first * group + inner}) for a in accesses for i in _indices(a)]
    return all("inside" not in symbols(index) for index in read)


def _indices(access: IndexAccess) -> Index:
    return (*access.index, access.expression)


def _divisors(dim: Dim) -> Iterable[int]:
    if isinstance(dim, Expr):
        for monomial, _ in dim.terms:
            for atom in monomial:
                yield from _divisors_of(atom)


def _divisors_of(atom: object) -> Iterable[int]:
    if isinstance(atom, Op):
        inside = DEPTH in symbols(atom.a)
        if inside and atom.kind in ("div", "mod") and isinstance(atom.b, int):
            yield atom.b
        yield from _divisors(atom.a)


@dataclass(frozen=True)
class Leaf:
    """A stored value that a weight is computed from, and its dim along the columns."""

    value: Value
    dim: int

    def panels(self, width: int, origin: str) -> Value:
        """Return a view (panels, rest, `width`): columns in panels, with all else row-major."""
        builder = GraphBuilder("panels", origin)
        shape = self.value.shape
        outer, rest = shape[self.dim], product(self._others)
        count, _, _ = panel_shape(outer, rest, width)
        turned = builder.emit("permute", self.value, dims=self._order)
        rows = builder.emit("reshape", turned, shape=(outer, rest))
        rows = padded(builder, rows, (count * width, rest))
        tiles = builder.emit("reshape", rows, shape=(count, width, rest))
        return builder.emit("permute", tiles, dims=(0, 2, 1))

    def read_back(self, panels: Value, width: int) -> Value:
        """Return the leaf as a view of its panels, along the columns longer by their padding."""
        builder = GraphBuilder("leaf")
        count = panels.shape[0]
        tiles = builder.emit("permute", panels, dims=(0, 2, 1))
        rows = builder.emit("reshape", tiles, shape=(count * width, *self._others))
        back = tuple(self._order.index(d) for d in range(len(self._order)))
        return builder.emit("permute", rows, dims=back)

    @property
    def _order(self) -> tuple[int, ...]:
        return (self.dim, *(d for d in range(len(self.value.shape)) if d != self.dim))

    @property
    def _others(self) -> tuple[Dim, ...]:
        return tuple(self.value.shape[d] for d in self._order[1:])


def leaves_along(accesses: Iterable[IndexAccess]) -> list[Leaf]:
    """Return the leaves worth panels: those with several elements for a column."""
    found: dict[Value, Leaf] = {}
    for access in accesses:
        leaf = None if access.value is None else _leaf(access.value, access.index)
        if leaf is not None:
            found.setdefault(leaf.value, leaf)
    return list(found.values())


def _leaf(value: Value, index: Index) -> Leaf | None:
    using = [d for d, position in enumerate(index) if COLUMN in symbols(position)]
    if len(using) != 1 or as_sym(index[using[0]]) is None:
        return None
    rest = product(size for d, size in enumerate(value.shape) if d != using[0])
    return None if rest == 1 else Leaf(value, using[0])

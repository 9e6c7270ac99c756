"""Fusion groups: the results of fusion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field
from enum import StrEnum

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Sym
from kernelmill.graph.ir import Graph, Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements.axes import fresh_axes, is_reduction, reduced_dims
from kernelmill.lower.elements.views import Index


class GroupKind(StrEnum):
    """The basis of a group's kernel: loops over a domain, or one operator, its seed."""

    NEST = "nest"  # maps and reductions
    CONTRACT = "contract"
    ATTENTION = "attention"
    SCAN = "scan"
    WHOLE = "whole"
    SCATTER = "scatter"
    ATEN = "aten"

    @property
    def is_product(self) -> bool:
        """True if the group has an epilogue, since elements of its result are complete at once."""
        return self in (GroupKind.CONTRACT, GroupKind.ATTENTION)


SEEDS = {
    OpKind.CONTRACT: GroupKind.CONTRACT,
    OpKind.ATTENTION: GroupKind.ATTENTION,
    OpKind.SCAN: GroupKind.SCAN,
    OpKind.WHOLE: GroupKind.WHOLE,
    OpKind.SCATTER: GroupKind.SCATTER,
    OpKind.ATEN: GroupKind.ATEN,
}
"""Operators that begin a group of their own, and of which kind."""


@dataclass(frozen=True, eq=False)
class FusionGroup:
    """Nodes that become one kernel (or one ATen call).

    kind      what its kernel is built around
    seed      the operator that all but a nest are built around
    outer     the axes of the iteration domain that every member has
    inner     the axes that the group's reductions reduce; empty in a pure map
    extents   size of each axis by symbol name
    internal  values computed inside, with the domain index of each use
    roots     values computed inside and stored, with their index in the domain
    """

    kind: GroupKind
    seed: Node | None
    outer: tuple[Sym, ...]
    inner: tuple[Sym, ...]
    extents: Mapping[str, Dim]
    internal: Mapping[Value, Index]
    roots: Mapping[Value, Index]

    @property
    def nodes(self) -> list[Node]:
        """The operators in the group, each once (for reports)."""
        values: Iterable[Value] = (*self.internal, *self.roots)
        found = {value.node for value in values if value.node is not None}
        if self.seed is not None:
            found.add(self.seed)
        return list(found)

    def reductions(self) -> dict[Value, Index]:
        """Return the reductions in the group with their index, which uses outer axes only."""
        return _reductions({**self.internal, **self.roots})


@dataclass(eq=False)
class OpenGroup:
    """A group while fusion makes it, as `FusionGroup`.

    code             what its kernel computes so far, as costs.py counts
    member_bits      its nodes, as order.py numbers them
    descendant_bits  those that come after one of its nodes
    """

    kind: GroupKind
    seed: Node | None = None
    outer: list[Sym] = field(default_factory=list[Sym])
    inner: list[Sym] = field(default_factory=list[Sym])
    extents: dict[str, Dim] = field(default_factory=dict[str, Dim])
    internal: dict[Value, Index] = field(default_factory=dict[Value, Index])
    roots: dict[Value, Index] = field(default_factory=dict[Value, Index])
    code: int = 0
    member_bits: int = 0
    descendant_bits: int = 0

    def reduces(self) -> bool:
        return bool(_reductions({**self.internal, **self.roots}))

    def closed(self) -> FusionGroup:
        """Return the group in its final form."""
        return FusionGroup(
            self.kind, self.seed, tuple(self.outer), tuple(self.inner), self.extents,
            self.internal, self.roots,
        )  # fmt: skip


def storing(value: Value) -> FusionGroup:
    """Return a group that computes and stores one value by itself."""
    extents: dict[str, Dim] = {}
    axes, index = fresh_axes(value.shape, "d", extents)
    inner: tuple[Sym, ...] = ()
    internal: dict[Value, Index] = {}
    if value.node is not None and is_reduction(value.node):
        internal[value] = index
        shape = value.node.operands[0].shape
        reduced, _ = fresh_axes([shape[d] for d in reduced_dims(value.node)], "d", extents)
        inner = tuple(reduced)
    return FusionGroup(GroupKind.NEST, None, tuple(axes), inner, extents, internal, {value: index})


def _reductions(values: Mapping[Value, Index]) -> dict[Value, Index]:
    return {
        value: index
        for value, index in values.items()
        if value.node is not None and is_reduction(value.node)
    }


def modifications(graph: Graph, stored: AbstractSet[Value]) -> frozenset[Value]:
    """Return the values between scores and attentions, and elementwise operands of these that vary
    along queries and keys, are not `stored` and have no other reader."""
    seeds = [node for node in graph.nodes if node.op == "flex_attention"]
    if not seeds:
        return frozenset()
    scores, users = _made_of_scores(graph.nodes), graph.users()
    wanted = {value for seed in seeds for value in _modified(seed)}
    inside: set[Value] = set()
    for node in reversed(graph.nodes):
        if len(node.results) != 1 or node.result not in wanted:
            continue
        value = node.result
        own = value in scores or (
            OPS[node.op].elementwise
            and _is_plane(value)
            and value not in stored
            and _read_inside(value, users, inside)
        )
        if own:
            inside.add(value)
            # What is looked up in may be anywhere.
            gathers = OPS[node.op].kind is OpKind.GATHER
            wanted.update(node.operands[gathers:])
    return frozenset(inside)


def _made_of_scores(nodes: Iterable[Node]) -> set[Value]:
    found: set[Value] = set()
    for node in nodes:
        definition = OPS[node.op]
        if definition.kind is OpKind.SCORES or (
            definition.elementwise and not found.isdisjoint(node.operands)
        ):
            found.add(node.result)
    return found


def _modified(seed: Node) -> tuple[Value, ...]:
    """Return the operands of an attention that it reads element by element."""
    masked = bool(seed.attrs.get("masked"))
    return (seed.operands[0], *seed.operands[2 : 2 + masked])


def _is_plane(value: Value) -> bool:
    """Return whether a value varies along both queries and keys."""
    return len(value.shape) == 4 and 1 not in value.shape[2:]


def _read_inside(
    value: Value, users: Mapping[Value, Iterable[Node]], inside: AbstractSet[Value]
) -> bool:
    return all(
        value in _modified(user)
        if user.op == "flex_attention"
        else len(user.results) == 1 and user.result in inside
        for user in users[value]
    )

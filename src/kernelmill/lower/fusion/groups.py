"""What a fusion group is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kernelmill.core.dim import Dim, Sym
from kernelmill.graph.ir import Node, Value
from kernelmill.lower.elements.axes import REDUCTIONS
from kernelmill.lower.elements.views import Index


@dataclass(eq=False)
class Group:
    """Nodes that become one kernel (or one ATen call).

    kind      "nest" (map and reduce), or the kind of its seed: "contract", "attention", "scan",
              "sort", "scatter", "aten".
    outer     the axes of the iteration domain that every member has
    inner     the axes that the group's reductions reduce; empty in a pure map
    extents   size of each axis by symbol name
    internal  values computed inside, with the domain index of each use
    roots     values computed inside and stored, with their index in the domain
    code      what its kernel computes so far, as growth.py counts
    """

    kind: str
    seed: Node | None = None
    outer: list[Sym] = field(default_factory=list[Sym])
    inner: list[Sym] = field(default_factory=list[Sym])
    extents: dict[str, Dim] = field(default_factory=dict[str, Dim])
    internal: dict[Value, Index] = field(default_factory=dict[Value, Index])
    roots: dict[Value, Index] = field(default_factory=dict[Value, Index])
    code: int = 0
    member_bits: int = 0
    descendant_bits: int = 0

    @property
    def nodes(self) -> list[Node]:
        """The operators in it, each once (for reports)."""
        values: Iterable[Value] = (*self.internal, *self.roots)
        found = {value.node for value in values if value.node is not None}
        if self.seed is not None:
            found.add(self.seed)
        return list(found)

    def reductions(self) -> dict[Value, Index]:
        """The reductions in it with their index, which uses outer axes only."""
        both = {**self.internal, **self.roots}
        return {
            value: index
            for value, index in both.items()
            if value.node is not None and value.node.op in REDUCTIONS
        }

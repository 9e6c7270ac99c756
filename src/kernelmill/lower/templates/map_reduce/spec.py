"""Spec of the map and reduce template: a fusion group without a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.ir import Value
from kernelmill.lower.elements.axes import operand_index
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.elements.views import Index
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.groups import Group


@dataclass(frozen=True)
class Nest:
    """The whole of it.

    targets   for each root of the group the memory it is stored to
    costs     of the graph's values
    stored    where values lie that the group reads, None for its own members
    """

    group: Group
    targets: Mapping[Value, Location]
    costs: Costs
    stored: Callable[[Value], Location | None]

    @cached_property
    def reductions(self) -> dict[Value, Index]:
        """The group's reductions with their index, which uses outer axes only."""
        return self.group.reductions()

    @cached_property
    def computed(self) -> list[tuple[Value, Index]]:
        """Elements that the loops compute, with their indices in the domain."""
        pairs = [(v, i) for v, i in self.group.roots.items() if v not in self.reductions]
        for value, index in self.reductions.items():
            assert value.node is not None
            at = operand_index(value.node, index, self.group.inner)
            pairs.append((value.node.operands[0], at))
        return pairs

"""Grouping of nodes into kernels, and the values of the graph that are stored."""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Value
from kernelmill.lower.driver.aliases import Aliases
from kernelmill.lower.driver.prepare import Prepared
from kernelmill.lower.elements.axes import is_view
from kernelmill.lower.fusion.costs import Costs
from kernelmill.lower.fusion.fuse import fuse
from kernelmill.lower.fusion.groups import Group
from kernelmill.lower.fusion.modifications import modifications
from kernelmill.lower.fusion.prepacked import Prepacked, kept_constants, prepacked_constants
from kernelmill.lower.weights.dequantise import dequantised


@dataclass(frozen=True)
class Grouping:
    """Groups in an order in which they can run.

    stored_views         views that their readers take from memory; others are read through
    dequantised_in_place values that products compute from smaller ones as they read them
    costs                of the graph's values
    folded               what products or reductions make of parameters, when weights are packed
    """

    groups: tuple[Group, ...]
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

"""Lowering in one file: a graph → stored values → groups → buffers → kernels → a plan.

Each stage is a module with a frozen result that the later ones read:

    prepare    images that are channels last; nodes for results and updates that need memory
    aliases    values that share memory with a view of them
    grouping   nodes that are computed together, stored values, values computed when packing
    placement  a buffer for each stored value, and the groups that fill them, in order
    operators  each group as a graph, for mode reduce-overhead and (small_constants) for small
               values that are computed once
    binding    a kernel for each group, packed weights, launches
    finish     the arena and the plan
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Graph
from kernelmill.lower.driver.aliases import find_aliases
from kernelmill.lower.driver.binding import Making, bind
from kernelmill.lower.driver.finish import finish
from kernelmill.lower.driver.kernels import KernelCache
from kernelmill.lower.driver.lowered import Announce, Lowered, LoweredOperator
from kernelmill.lower.driver.operators import Extracted, extract
from kernelmill.lower.driver.placement import Placed, Work, group_nodes, place
from kernelmill.lower.driver.prepare import prepare
from kernelmill.lower.driver.small_constants import SmallConstants, lower_small_constants
from kernelmill.lower.schedule.search import Settle


def lower_graph(
    graph: Graph,
    machine: Machine,
    separate: bool = False,
    settle: Settle | None = None,
    cache: KernelCache | None = None,
    announce: Announce | None = None,
) -> Lowered:
    """Lower a verified graph; with `separate`, every operator to a kernel of its own.

    `settle` says of schedules what the cost model does not decide. `cache` is shared with other
    graphs lowered alike. Each kernel that is made here is told to `announce` as soon as it is, so
    that compiling it can begin. Raises UnsupportedError, naming the node, for what has no lowering.
    """
    placed = _placed(graph, machine, separate)
    cache = cache or KernelCache()
    small = _small_constants(placed, machine, cache)
    return finish(placed, bind(placed, Making(machine, settle, cache, announce, small)))


def lower_traced(graph: Graph, machine: Machine) -> tuple[Lowered, Placed]:
    """Lower a graph as `lower_graph` does; return also where its values are stored. Each step of
    the plan belongs to a placed step that is not constant, in order."""
    placed = _placed(graph, machine, separate=False)
    cache = KernelCache()
    making = Making(machine, cache=cache, inlined=_small_constants(placed, machine, cache))
    return finish(placed, bind(placed, making)), placed


def extract_operators(graph: Graph, machine: Machine) -> Extracted:
    """Extract the operators of a verified graph. The caller chooses how each is lowered, which
    `lower_operators` puts together."""
    return extract(_placed(graph, machine, separate=True))


def lower_operators(
    extracted: Extracted, chosen: Mapping[Work, LoweredOperator], machine: Machine
) -> Lowered:
    """Build the program of operators lowered by themselves, which are inlined; for others a kernel
    is made here. Raises UnsupportedError as `lower_graph` does."""
    inlined = {work: (extracted.operators[work], lowered) for work, lowered in chosen.items()}
    placed = extracted.placed
    return finish(placed, bind(placed, Making(machine, inlined=inlined)))


def _small_constants(placed: Placed, machine: Machine, cache: KernelCache) -> SmallConstants:
    def lower(graph: Graph) -> Lowered:
        return lower_graph(graph, machine)

    return lower_small_constants(placed, lower, cache.general)


def _placed(graph: Graph, machine: Machine, separate: bool) -> Placed:
    prepared = prepare(graph, separate)
    aliases = find_aliases(prepared)
    grouping = group_nodes(prepared, aliases, machine, separate)
    return place(prepared, aliases, grouping)

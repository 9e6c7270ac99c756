"""A graph made ready: whatever must be in memory in an order of its own is a value of the graph."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.roles import InputRole
from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Graph, Input, Node, TensorType, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.driver.by_channel import normalise_by_channel
from kernelmill.lower.driver.layouts import (
    channels_last_arguments,
    choose_layouts,
    is_channels_last,
    with_followers,
)
from kernelmill.lower.driver.lookups import look_up_by_axis
from kernelmill.lower.elements.axes import is_view


@dataclass(frozen=True)
class Prepared:
    """The program's graph with `layout` nodes for results and updates that need them.

    constants       parameters that no update writes to
    parameters      their positions among the inputs
    channels_last   images that are stored with their channels last
    update_sources  for each update the value that a kernel computes for it
    stored_views    those of them that are views: they are read from memory, as they were before
                    other updates
    columns         what is looked up along one axis for lookups along another: it is stored
    """

    graph: Graph
    constants: frozenset[Value]
    parameters: frozenset[int]
    channels_last: frozenset[Value]
    update_sources: tuple[Value, ...]
    stored_views: frozenset[Value]
    columns: frozenset[Value]


def prepare(graph: Graph, separate: bool) -> Prepared:
    """Make a graph ready; the given one stays as it is. With `separate` every operator's result is
    stored as the program has it, images too."""
    made = replace(graph, nodes=list(graph.nodes), results=list(graph.results))
    updated = {target for target, _ in graph.updates}
    constants = frozenset(
        entry.value
        for entry in graph.tensor_inputs()
        if entry.role != InputRole.USER and entry.value not in updated
    )
    parameters = frozenset(
        position
        for position, entry in enumerate(graph.inputs)
        if isinstance(entry, Input) and entry.value in constants
    )
    images = columns = frozenset[Value]()
    if not separate:
        made, images, columns = _with_layouts(made, constants)
        _restore_order(made, images)
    sources = tuple(_computed(made, value) for _, value in made.updates)
    own = frozenset(sources) - {value for _, value in made.updates}
    return Prepared(made, constants, parameters, images, sources, own, columns)


def _with_layouts(
    graph: Graph, constants: frozenset[Value]
) -> tuple[Graph, frozenset[Value], frozenset[Value]]:
    """The graph as it is best for images with their channels last, those that are stored so, and
    `Prepared.columns`. A norm that was written for such images may be followed by others."""
    while True:
        images = frozenset(choose_layouts(graph, constants).values)
        known = images | with_followers(graph, channels_last_arguments(graph, constants))
        better = normalise_by_channel(graph, known)
        if better is None:
            break
        graph = better
    graph, columns = look_up_by_axis(graph, known)
    return graph, frozenset(choose_layouts(graph, constants).values) if columns else images, columns


def _restore_order(graph: Graph, images: Collection[Value]) -> None:
    """Copy results among images stored channels last into their own order."""
    for number, result in enumerate(graph.results):
        if not isinstance(result, Value) or is_view(result) or is_channels_last(result):
            continue
        if result in images:
            graph.results[number] = _add_layout(graph, result)


def _computed(graph: Graph, value: Value) -> Value:
    """Return a value that a kernel computes; values of other origins get a node of their own."""
    node = value.node
    if node is None or OPS[node.op].transparent or OPS[node.op].kind is OpKind.SOURCE:
        return _add_layout(graph, value)
    return value


def _add_layout(graph: Graph, value: Value) -> Value:
    node = layout_of(value)
    graph.nodes.append(node)
    return node.result


def layout_of(value: Value) -> Node:
    """Make a node for a value itself, as a member of the program, so that it can be stored."""
    node = Node("layout", (value,), {"strides": value.type.memory_strides})
    kind = TensorType(value.dtype, value.shape, value.type.strides)
    node.results = (Value(f"{value.name}_stored", kind, node),)
    return node

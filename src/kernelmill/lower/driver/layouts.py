"""Choice of the images stored channels last: one layout for a whole chain of convolutions.

What convolutions, and whatever follows them pixel by pixel or window by window, compute is stored
with the channels of a pixel side by side. Inputs are read as they lie; a result that has to lie in
another order is copied once, at the end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.definition import OpKind
from kernelmill.graph.ir import Graph, Node, Value, row_major
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements.axes import is_reduction
from kernelmill.lower.templates.convolution.channels_last.layout import FEW_OUTS, blockable

_FEW_CONVOLUTIONS = 2
"""So many must gain before images that come in the usual order change their layout."""


_OTHERWISE = (OpKind.SOURCE, OpKind.ATEN, OpKind.CONTRACT, OpKind.ATTENTION, OpKind.SCORES)
"""What is not stored as readers like it."""


@dataclass
class Layouts:
    """`values` are to be stored channels last; `nodes` are the convolutions among them."""

    values: set[Value] = field(default_factory=set[Value])
    nodes: list[Node] = field(default_factory=list[Node])


def choose_layouts(graph: Graph, constants: Collection[Value]) -> Layouts:
    """Choose the layouts of a graph with `constants`; none where little would be gained.

    `values` may hold views and values that are never stored.
    """
    given = channels_last_arguments(graph, constants)
    found, lasting = Layouts(set(given)), _find_lasting(graph, constants)
    for node in graph.nodes:
        if _gains(node, found.values, lasting):
            found.nodes.append(node)
            found.values.add(node.result)
        elif _follows(node, found.values):
            found.values.add(node.result)
    found.values -= given
    results = [r for r in graph.results if isinstance(r, Value) and r in found.values]
    copied = [result for result in results if not is_channels_last(result)]
    few = 1 if given else _FEW_CONVOLUTIONS
    if len(found.nodes) < few or 2 * len(copied) > len(found.nodes):
        return Layouts()
    images = (_without_border(node.operands[0]) for node in found.nodes)
    found.values.update(image for image in images if _image(image))
    return found


def channels_last_arguments(graph: Graph, constants: Collection[Value]) -> set[Value]:
    """Return the arguments other than weights that are stored channels last."""
    given = {entry.value for entry in graph.tensor_inputs()} - set(constants)
    return {value for value in given if is_channels_last(value)}


def with_followers(graph: Graph, images: Collection[Value]) -> set[Value]:
    """Return these images and those that nodes compute from them, pixel by pixel or by window."""
    found = set(images)
    for node in graph.nodes:
        if _follows(node, found):
            found.add(node.result)
    return found


def is_channels_last(value: Value) -> bool:
    """Check that an image is dense with its channels last, and in no other order."""
    shape, strides = value.shape, value.type.memory_strides
    if len(shape) not in (3, 4) or strides == row_major(shape):
        return False
    ordered = row_major((shape[0], *shape[2:], shape[1]))
    return strides == (ordered[0], ordered[-1], *ordered[1:-1])


def last(value: Value) -> Value:
    """Return a view of an image that has its channels last."""
    order = (0, *range(2, len(value.shape)), 1)
    return GraphBuilder("channels_last").emit("permute", value, dims=order)


def _gains(node: Node, values: Collection[Value], constants: Collection[Value]) -> bool:
    if not blockable(node) or node.operands[1] not in constants:
        return False
    outs = node.result.shape[1]
    return node.operands[0] in values or (isinstance(outs, int) and outs >= FEW_OUTS)


def _find_lasting(graph: Graph, constants: Collection[Value]) -> set[Value]:
    """Return the values computed from constants alone, or from nothing."""
    found = set(constants)
    for node in graph.nodes:
        if node.op != "aten" and found.issuperset(node.operands):
            found.update(node.results)
    return found


def _without_border(value: Value) -> Value:
    while value.node is not None and value.node.op == "pad":
        value = value.node.operands[0]
    return value


def _image(value: Value) -> bool:
    """Check that a value is computed, and is an image in row-major order."""
    shape, node = value.shape, value.node
    if node is None or len(shape) not in (3, 4):
        return False
    if OPS[node.op].transparent or OPS[node.op].kind in _OTHERWISE:
        return False
    return value.type.memory_strides == tuple(row_major(shape))


def _follows(node: Node, values: Collection[Value]) -> bool:
    """Check that a node computes an image from one that is stored channels last."""
    if len(node.results) != 1 or len(node.result.shape) not in (3, 4):
        return False
    rank, definition = len(node.result.shape), OPS[node.op]
    images = [x for x in node.operands if x in values and len(x.shape) >= rank]
    if not images:
        return False
    if definition.kind is OpKind.POINTWISE or definition.keeps_axes:
        return True
    if is_reduction(node):
        dims = node.attrs.get("dims")
        return isinstance(dims, tuple) and all(isinstance(d, int) and d >= rank for d in dims)
    return node.op == "index" and _beside_channels(node)


def _beside_channels(node: Node) -> bool:
    """Check that an index node looks up pixels with all channels and keeps the dims in place."""
    dims, at = node.attrs["dims"], node.attrs["at"]
    assert isinstance(dims, tuple)
    return all(isinstance(d, int) and d >= 2 for d in dims) and at == dims[0]

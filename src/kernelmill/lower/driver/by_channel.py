"""Norms of groups of channels, written by pixel and channel.

A graph has a group norm as reductions over an image in another shape:

    reshape (n, c, h, w) as (n, groups, c / groups, h * w) --> reduce over the last two dims

Nothing that is stored in that shape can have its channels last. Where an image does, the same is
written as

    reduce (n, c, h, w) over h and w --> reshape (n, c) as (n, groups, c / groups) --> reduce

and what is computed element by element in between is computed of the image.
"""

from __future__ import annotations

from collections.abc import Collection

from kernelmill.core.dim import product
from kernelmill.graph.definition import OpKind
from kernelmill.graph.effects import has_effect
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.graph.rewriter import Rewriter, live_values
from kernelmill.lower.elements.axes import is_reduction, reduced_dims


def normalise_by_channel(graph: Graph, images: Collection[Value]) -> Graph | None:
    """Write the norms of these images by channel; return None where there are none."""
    return _ByChannel(graph, images).run()


class _ByChannel:
    """`forms` has, for each value of an image in groups, the same in the image's shape."""

    def __init__(self, graph: Graph, images: Collection[Value]) -> None:
        self.graph, self.images = graph, images
        self.rewriter = Rewriter(graph)
        self.forms: dict[Value, Value] = {}
        self.changed = False

    def run(self) -> Graph | None:
        if not any(node.op == "reshape" and self._groups(node) for node in self.graph.nodes):
            return None
        for node in self.graph.nodes:
            if not self._rewrite(node):
                self.rewriter.keep(node)
        if not self.changed:
            return None
        self.rewriter.lay_out(live_values(self.graph))
        return _without_unread(self.rewriter.finish())

    def _rewrite(self, node: Node) -> bool:
        """Rewrite a node, and return True if the rewritten nodes replace it. A node in groups also
        stays, for readers that are not rewritten."""
        if node.op == "reshape":
            return self._reshape(node)
        if is_reduction(node):
            return self._reduce(node)
        if OPS[node.op].kind is OpKind.POINTWISE:
            self._pointwise(node)
        return False

    def _groups(self, node: Node) -> bool:
        """Check that a node reshapes an image as (n, groups, channels of a group, pixels)."""
        image, shape = node.operands[0], node.result.shape
        if image not in self.images or len(shape) != 4 or len(image.shape) < 3:
            return False
        sizes = image.shape[0], image.shape[1], product(image.shape[2:])
        return sizes == (shape[0], shape[1] * shape[2], shape[3]) and shape != image.shape

    def _reshape(self, node: Node) -> bool:
        source = node.operands[0]
        if self._groups(node):
            self.forms[node.result] = self.rewriter.value(source)
            return False
        form = self.forms.get(source)
        if form is None or form.shape != node.result.shape:
            return False
        self.rewriter.replace(node.result, form)
        return True

    def _reduce(self, node: Node) -> bool:
        whole = _whole(node)
        form = None if whole is None else self.forms.get(whole)
        if form is None or OPS[node.op].kernel_op is None or node.attrs.get("ordered"):
            return False
        assert whole is not None
        pixels = tuple(range(2, len(form.shape)))
        channels = self.rewriter.emit(node, node.op, form, dims=pixels)
        shape = whole.shape[:3]
        grouped = self.rewriter.emit(node, "reshape", channels, shape=shape)
        self.rewriter.replace(node.result, self.rewriter.emit(node, node.op, grouped, dims=(2,)))
        self.changed = True
        return True

    def _pointwise(self, node: Node) -> None:
        found = [self.forms[x] for x in node.operands if x in self.forms]
        if not found:
            return
        operands = [self._as_image(node, x, found[0]) for x in node.operands]
        known = [x for x in operands if x is not None]
        if len(known) == len(operands):
            self.forms[node.result] = self.rewriter.emit(node, node.op, *known, **node.attrs)

    def _as_image(self, node: Node, value: Value, image: Value) -> Value | None:
        """An operand of a node in groups in the shape of the image: it is in groups too, or the
        same all over a group."""
        emit, made = self.rewriter.emit, value.node
        if value in self.forms:
            form = self.forms[value]
            return form if form.shape == image.shape else None
        if made is not None and made.op == "full":
            return emit(node, "full", **{**made.attrs, "shape": image.shape})
        if made is None or made.op != "expand":
            return None
        source, (n, groups, channels, _) = made.operands[0], value.shape
        if source.shape != (n, groups, 1, 1):
            return None
        each = emit(node, "expand", self.rewriter.value(source), shape=(n, groups, channels, 1))
        ones = (1,) * (len(image.shape) - 2)
        each = emit(node, "reshape", each, shape=(*image.shape[:2], *ones))
        return emit(node, "expand", each, shape=image.shape)


def _whole(node: Node) -> Value | None:
    """Return the value that a node reduces over its last two dims of four, in one step or in two
    (of elements that are first cut into parts in order); None for other reductions."""
    source, dims = node.operands[0], reduced_dims(node)
    if len(source.shape) == 4:
        return source if dims == (2, 3) and len(node.result.shape) == 2 else None
    first = source.node
    if dims != (2,) or first is None or first.op != node.op or reduced_dims(first) != (3,):
        return None
    whole = first.operands[0]
    while whole.node is not None and (whole.node.op == "reshape" or _is_identity(whole.node)):
        whole = whole.node.operands[0]
        if len(whole.shape) == 4 and whole.shape[:2] == node.result.shape:
            return whole
    return None


def _is_identity(node: Node) -> bool:
    return node.op == "permute" and node.attrs["dims"] == tuple(range(len(node.result.shape)))


def _without_unread(graph: Graph) -> Graph:
    """Drop the nodes that nobody reads: those in groups that rewritten nodes have replaced."""
    read = set(live_values(graph))
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if has_effect(node) or not read.isdisjoint(node.results):
            read.update(node.operands)
            kept.append(node)
    graph.nodes[:] = reversed(kept)
    return graph

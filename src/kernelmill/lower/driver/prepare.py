"""Preparation of a graph for lowering: a node for each value that must be in memory in a given
order, and images stored channels last where that pays off.

Group norms are rewritten by pixel and channel.

A graph has a group norm as reductions over an image in another shape:

    reshape (n, c, h, w) as (n, groups, c / groups, h * w) --> reduce over the last two dims

A value stored in that shape cannot be channels last. For an image that is, the norm becomes

    reduce (n, c, h, w) over h and w --> reshape (n, c) as (n, groups, c / groups) --> reduce

and elementwise operators between apply to the image.

Images are resized along one axis after the other:

    index(x, rows expanded, columns expanded) --> index(index(x, columns), rows)

The result of the first look-up is stored, so each column is read once for all rows that use it, and
these rows are contiguous in memory. With channels last, the channels of a pixel are so already.

One layout is chosen for a whole chain of convolutions. Results of convolutions, and of operators
that follow them by pixel or window, are stored channels last. Inputs are read in their own layout;
a result that needs another order is copied once, at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field, replace

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, product
from kernelmill.core.dtype import InputRole
from kernelmill.graph.builder import GraphBuilder, Rewriter, live_values
from kernelmill.graph.effects import has_effect
from kernelmill.graph.ir import Graph, Input, Node, OpKind, TensorType, Value, row_major
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements.axes import is_reduction, is_view, reduced_dims
from kernelmill.lower.fusion.costs import extent
from kernelmill.lower.templates.convolution.channels_last.layout import FEW_OUTS, blockable


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


def look_up_by_axis(graph: Graph, images: Collection[Value]) -> tuple[Graph, frozenset[Value]]:
    """Return the graph with lookups of whole rows and columns split by axis, but for these images,
    and the values to store for that."""
    apart = {node: found for node in graph.nodes if (found := _along_axes(node, images))}
    if not apart:
        return graph, frozenset()
    rewriter = Rewriter(graph)
    made: dict[tuple[Value, int, Value], Value] = {}
    stored: set[Value] = set()
    for node in graph.nodes:
        axes = apart.get(node)
        if axes is None:
            rewriter.keep(node)
            continue
        options = {"unsigned": True} if node.attrs.get("unsigned") else {}
        found = rewriter.value(node.operands[0])
        for dim in _in_order(node, axes):
            before, index = found, rewriter.value(axes[dim])
            if (before, dim, index) not in made:
                flat = rewriter.emit(node, "reshape", index, shape=(node.result.shape[dim],))
                made[before, dim, index] = rewriter.emit(
                    node, "index", before, flat, dims=(dim,), at=dim, **options
                )
            found = made[before, dim, index]
            stored.add(before)
        rewriter.replace(node.result, found)
    rewriter.lay_out(live_values(graph))
    return rewriter.finish(), frozenset(stored & set(made.values()))


def _along_axes(node: Node, images: Collection[Value]) -> dict[int, Value] | None:
    """For each dim that is looked up along, the only index that it has, if all have such and one
    after the other they take fewer lookups."""
    if node.op != "index" or len(node.operands) < 3 or node.operands[0] in images:
        return None
    first, grid = node.attrs["at"], node.operands[1].shape
    assert isinstance(first, int)
    if node.attrs["dims"] != tuple(range(first, first + len(grid))):
        return None
    found: dict[int, Value] = {}
    for number, operand in enumerate(node.operands[1:]):
        expanded = operand.node
        if expanded is None or expanded.op != "expand":
            return None
        source = expanded.operands[0]
        alone: list[Dim] = [1] * len(grid)
        alone[number] = grid[number]
        if tuple(alone[len(grid) - len(source.shape) :]) != source.shape:
            return None
        found[first + number] = source
    # The axis that comes last is looked up along what is stored: to gain, it has to grow.
    return found if _growth(node, _in_order(node, found)[-1])[0] >= 1 else None


def _in_order(node: Node, axes: Iterable[int]) -> list[int]:
    return sorted(axes, key=lambda dim: _growth(node, dim))


def _growth(node: Node, dim: int) -> tuple[float, int]:
    """Return a sort key for lookups: axes by growth, the last axis first on ties."""
    have, want = node.operands[0].shape[dim], node.result.shape[dim]
    return extent([want]) / extent([have]), -dim


_FEW_CONVOLUTIONS = 2
"""Least number of convolutions that gain from another layout of images in the usual order."""


_OTHERWISE = (OpKind.SOURCE, OpKind.ATEN, OpKind.CONTRACT, OpKind.ATTENTION, OpKind.SCORES)
"""Values whose layout readers do not choose."""


@dataclass
class ImageLayouts:
    """`values` are to be stored channels last; `nodes` are the convolutions among them."""

    values: set[Value] = field(default_factory=set[Value])
    nodes: list[Node] = field(default_factory=list[Node])


def choose_layouts(graph: Graph, constants: Collection[Value]) -> ImageLayouts:
    """Choose the layouts of a graph with `constants`; none where little would be gained.

    `values` may hold views and values that are never stored.
    """
    given = channels_last_arguments(graph, constants)
    found, lasting = ImageLayouts(set(given)), _find_lasting(graph, constants)
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
        return ImageLayouts()
    images = (node.operands[0].behind("pad") for node in found.nodes)
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
    if not 3 <= len(shape) <= 5 or strides == row_major(shape):
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


def _image(value: Value) -> bool:
    """Check that a value is computed, and is an image in row-major order."""
    shape, node = value.shape, value.node
    if node is None or not 3 <= len(shape) <= 5:
        return False
    if OPS[node.op].transparent or OPS[node.op].kind in _OTHERWISE:
        return False
    return value.type.memory_strides == tuple(row_major(shape))


def _follows(node: Node, values: Collection[Value]) -> bool:
    """Check that a node computes an image from one that is stored channels last."""
    if len(node.results) != 1 or not 3 <= len(node.result.shape) <= 5:
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

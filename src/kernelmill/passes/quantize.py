"""Replaces products with weights by int8 or int4 products, and tables of embeddings by int8 tables.

A weight W (k, n) of the model is replaced by integers and scales that are computed from it when
weights are packed. `round` is to nearest even; a scale is at least 2**-100.

    int8          w[n] = max |W[:, n]| / 127             B = round(W * (1 / w))
                  x[m] = (max(X[m], 0) - min(X[m], 0)) / 255
                  z[m] = round(min(X[m], 0) * (1 / x[m])) + 128
                  A = min(round(X * (1 / x)) - z, 127)
                  Y = (A @ B + z * sum_k B) * x * w      the sums are exact, in i32
    int8-weights  Y = (X @ B) * w
                  of a table, by both: Y = B[i] * w[i], with w[n] and B by row
    int8(l, h)    x = max((h - l) / 255, 2**-100)        z = round(l * (1 / x)) + 128
                  A = max(min(round(X * (1 / x)) - z, 127), -128), for all rows alike, and else
                  as int8; of a convolution k are taps and channels, and a border is -z
    int4-weights  by groups of k: w = (the number of W in it that is largest in size) / -8
                  B = min(round(W * (1 / w)), 7)         Y = X @ (B * w)
"""

from __future__ import annotations

from dataclasses import field
from typing import cast

from kernelmill.config.schemes import (
    SMALLEST,
    RangeSteps,
    group_of,
    layer_name,
    range_of,
    scheme_of,
    steps_of,
    why_no_convolution,
    why_no_table,
    why_not,
)
from kernelmill.config.schemes import Quantize as Schemes
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, product
from kernelmill.core.dtype import BF16, F16, F32, I8, I32, U8, DType, InputRole
from kernelmill.graph.builder import Rewriter, rewritten
from kernelmill.graph.ir import Graph, Node, Value, row_major
from kernelmill.passes.dce import EliminateDeadCode

_FLOATS = (F32, F16, BF16)


@dataclass(frozen=True)
class Quantize:
    """Quantises products of two matrices whose second one is a weight, convolutions and tables of
    embeddings, by the layer's name."""

    schemes: Schemes
    name: str = "quantize"

    def apply(self, graph: Graph) -> Graph:
        layers = quantised_layers(graph, self.schemes)
        writer = _Writer()
        writers = {"conv": writer.convolution, "index": writer.rows_of_table}

        def write(rewriter: Rewriter, node: Node) -> Value | None:
            written = writers.get(node.op, writer.product)
            return written(Emit(rewriter, node), layers[node]) if node in layers else None

        return EliminateDeadCode().apply(rewritten(graph, write))


@dataclass(frozen=True)
class Layer:
    """The quantisation of the product with a `weight`, the model's `value` or a view of it.
    `inputs` is the weight's dim of inputs, of a convolution the first; of a table it is 1."""

    scheme: str
    value: Value
    weight: Value
    inputs: int


def constant_inputs(graph: Graph) -> set[Value]:
    """Return the parameters and buffers that the graph does not write to."""
    written = {target for target, _ in graph.updates}
    return {
        entry.value
        for entry in graph.tensor_inputs()
        if entry.role is not InputRole.USER and entry.value not in written
    }


def quantised_layers(graph: Graph, schemes: Schemes) -> dict[Node, Layer]:
    """Return the products and lookups of a graph that are quantised."""
    weights = constant_inputs(graph)
    found: dict[Node, Layer] = {}
    for node in graph.nodes:
        if node.op in ("matmul", "conv") and node.operands[0] not in weights:
            layer = _layer(node, schemes)
        else:
            layer = _table(node, schemes) if node.op == "index" else None
        if layer is not None and layer.value in weights:
            found[node] = layer
    return found


def _table(node: Node, schemes: Schemes) -> Layer | None:
    value = node.operands[0]
    by_row = node.attrs["dims"] == (0,) and node.attrs.get("unsigned") and len(value.shape) == 2
    rows = value.shape[0] if by_row else None
    if value.node is not None or value.dtype not in _FLOATS or not isinstance(rows, int):
        return None
    scheme = _scheme(value, schemes)
    return None if why_no_table(scheme, rows) else Layer(scheme, value, value, 1)


def _scheme(weight: Value, schemes: Schemes) -> str:
    """Return the scheme for the layer of a weight; "" where it is not quantised."""
    name = layer_name(weight.name)
    # The first part of a name may be the variable that holds the model.
    return scheme_of(schemes, name, name.partition(".")[2] or name) or ""


def _layer(node: Node, schemes: Schemes) -> Layer | None:
    a, b = node.operands
    value, inputs = b, 0
    views = ("permute", "cast", *(("reshape", "flip", "slice") if node.op == "conv" else ()))
    while value.node is not None and value.node.op in views:
        if value.node.attrs.get("dims") == (1, 0):
            inputs = 1 - inputs
        value = value.node.operands[0]
    if value.node is not None or not (a.dtype in _FLOATS and value.dtype in _FLOATS):
        return None
    shape = tuple(size for size in b.shape if isinstance(size, int))
    if len(shape) != len(b.shape) or (len(shape) != 2) != (node.op == "conv"):
        return None
    scheme = _scheme(value, schemes)
    if not scheme:
        return None
    if node.op == "conv":
        groups = node.attrs["groups"]
        assert isinstance(groups, int)
        reason = range_of(scheme) is None or why_no_convolution(scheme, shape, groups)
        return None if reason else Layer(scheme, value, b, 1)
    return None if why_not(scheme, *shape) else Layer(scheme, value, value, inputs)


@dataclass(frozen=True)
class _Rows:
    """Rows of integers, (m, k), with their scales and offsets, (m,)."""

    numbers: Value
    scales: Value
    offsets: Value


@dataclass(frozen=True)
class _Channels:
    """A weight of integers, (n, k), with its scales and sums, (n,)."""

    numbers: Value
    scales: Value
    sums: Value


class _Writer:
    """Writes quantised products. Rows and weights that several products read are written once."""

    def __init__(self) -> None:
        self._rows: dict[Value, _Rows] = {}
        self._stepped: dict[tuple[Value, RangeSteps], Value] = {}
        self._weights: dict[tuple[Value, int], _Channels] = {}

    def product(self, e: Emit, layer: Layer) -> Value:
        """Write the quantised product that replaces a node."""
        (a, _), dtype = e.rewriter.operands(e.like), e.like.result.dtype
        if group_of(layer.scheme):
            weight = e.permute(_four_bits(e, layer), (1, 0))
            return e.cast(e("matmul", e.cast(a, F32), weight), dtype)
        weight = self._channels(e, layer)
        m, n = e.like.result.shape
        scales = e.spread(weight.scales, 1, (m, n))
        if layer.scheme == "int8-weights":
            b = e.permute(e.cast(e.kept(weight.numbers), a.dtype), (1, 0))
            return e.cast(e("mul", e("matmul", a, b, dtype=F32), scales), dtype)
        steps = range_of(layer.scheme)
        if steps is not None:
            b = e.permute(weight.numbers, (1, 0))
            sums = e("matmul", self._in_steps(e, a, steps_of(*steps)), b, dtype=I32)
            return e.cast(_of_steps(e, sums, weight, steps_of(*steps)), dtype)
        if a not in self._rows:
            self._rows[a] = _quantised_rows(e, a)
        rows = self._rows[a]
        sums = e("matmul", rows.numbers, e.permute(weight.numbers, (1, 0)), dtype=I32)
        offsets = e("mul", e.spread(rows.offsets, 0, (m, n)), e.spread(weight.sums, 1, (m, n)))
        scaled = e("mul", e.cast(e("add", sums, offsets), F32), e.spread(rows.scales, 0, (m, n)))
        return e.cast(e("mul", scaled, scales), dtype)

    def convolution(self, e: Emit, layer: Layer) -> Value:
        """Write the quantised convolution that replaces a node. A border of the number that stands
        for zero lets all pixels have the same offset."""
        found = range_of(layer.scheme)
        assert found is not None
        steps = steps_of(*found)
        image = self._in_steps(e, e.rewriter.operands(e.like)[0], steps)
        weight = self._channels(e, layer)
        numbers = e("reshape", weight.numbers, shape=layer.weight.shape)
        sums = convolved(e, bordered(e, image, -steps.zero), numbers)
        return e.cast(_of_steps(e, sums, weight, steps), e.like.result.dtype)

    def rows_of_table(self, e: Emit, layer: Layer) -> Value:
        """Write the quantised rows that replace those of a table."""
        weight, node = self._channels(e, layer), e.like
        (_, places), shape = e.rewriter.operands(node), node.result.shape
        numbers, scales = (
            e("index", e.kept(part), places, **node.attrs)
            for part in (weight.numbers, weight.scales)
        )
        scales = e("expand", e("reshape", scales, shape=(*shape[:-1], 1)), shape=shape)
        return e.cast(e("mul", e.cast(numbers, F32), scales), node.result.dtype)

    def _channels(self, e: Emit, layer: Layer) -> _Channels:
        key = (layer.weight, layer.inputs)
        if key not in self._weights:
            self._weights[key] = _channels(e, layer)
        return self._weights[key]

    def _in_steps(self, e: Emit, a: Value, steps: RangeSteps) -> Value:
        """Return the numbers of eight bits that stand for those of a value."""
        if (a, steps) not in self._stepped:
            x = e.cast(a, F32)
            whole = e("round", e("mul", x, e.full(steps.factor, x)))
            whole = e.at_least(e("sub", whole, e.full(float(steps.zero), x)), -128.0)
            self._stepped[a, steps] = e.cast(e("minimum", whole, e.full(127.0, x)), I8)
        return self._stepped[a, steps]


def _of_steps(e: Emit, sums: Value, weight: _Channels, steps: RangeSteps) -> Value:
    """Dequantise sums of products, (m, n) or of an image: scales and offsets are those of channels
    alone, and computed when weights are packed."""
    offsets = e.kept(e("mul", weight.sums, e.full(steps.zero, weight.sums)))
    scales = e.kept(e("mul", weight.scales, e.full(steps.size, weight.scales)))
    return of_channels(e, sums, offsets, scales)


def of_channels(e: Emit, sums: Value, offsets: Value, scales: Value) -> Value:
    """Return (sums + offsets) * scales in f32, where the sums are (m, n) or those of an image, and
    the others (n,)."""
    sums = e("add", sums, e.spread(offsets, 1, sums.shape))
    return e("mul", e.cast(sums, F32), e.spread(scales, 1, sums.shape))


def bordered(e: Emit, image: Value, number: int) -> Value:
    """Return the image with the border of the convolution that is replaced, of this number."""
    border = (0, 0, *cast("tuple[int, ...]", e.like.attrs["padding"]))
    return e("pad", image, low=border, high=border, value=number) if any(border) else image


def convolved(e: Emit, image: Value, numbers: Value) -> Value:
    """Return the sums, in i32, of the convolution that is replaced, of an image with its border."""
    attrs = {**e.like.attrs, "padding": (0,) * (len(image.shape) - 2), "dtype": I32}
    return e("conv", image, numbers, **attrs)


def _channels(e: Emit, layer: Layer) -> _Channels:
    weight = e.cast(e.rewriter.value(layer.weight), F32)
    if layer.inputs == 0:
        weight = e.permute(weight, (1, 0))
    if len(weight.shape) > 2:
        weight = e("reshape", weight, shape=(weight.shape[0], product(weight.shape[1:])))
    size = e("reduce_max", e("abs", weight), dims=(1,))
    scales = e.at_least(e("div", size, e.full(127.0, size)), SMALLEST)
    factors = e.spread(e("reciprocal", scales), 0, weight.shape)
    numbers = e.cast(e("round", e("mul", weight, factors)), I8)
    return _Channels(numbers, scales, e("reduce_sum", e.cast(numbers, I32), dims=(1,)))


def _quantised_rows(e: Emit, a: Value) -> _Rows:
    x = e.cast(a, F32)
    low, high = e("reduce_min", x, dims=(1,)), e("reduce_max", x, dims=(1,))
    low, high = e("minimum", low, e.full(0.0, low)), e.at_least(high, 0.0)
    width = e("sub", high, low)
    scales = e.at_least(e("div", width, e.full(255.0, width)), SMALLEST)
    factors = e("reciprocal", scales)
    zero = e("round", e("mul", low, factors))
    offsets = e("add", zero, e.full(128.0, zero))
    whole = e("round", e("mul", x, e.spread(factors, 0, x.shape)))
    whole = e("sub", whole, e.spread(offsets, 0, x.shape))
    numbers = e.cast(e("minimum", whole, e.full(127.0, whole)), I8)
    return _Rows(numbers, scales, e.cast(offsets, I32))


def _four_bits(e: Emit, layer: Layer) -> Value:
    """Return the weight (n, k) as it is computed from packed numbers, two to a byte, and scales."""
    weight = e.cast(layer.value, F32)
    if layer.inputs == 0:
        weight = e.permute(weight, (1, 0))
    (n, k), group = weight.shape, group_of(layer.scheme)
    assert isinstance(k, int)
    grouped = (n, k // group, group)
    weight = e("reshape", weight, shape=grouped)
    low, high = e("reduce_min", weight, dims=(2,)), e("reduce_max", weight, dims=(2,))
    farthest = e("where", e("gt", e("neg", low), high), low, high)
    scales = e("div", farthest, e.full(-8.0, farthest))
    nothing = e("lt", e("abs", scales), e.full(SMALLEST, scales))
    scales = e.kept(e("where", nothing, e.full(SMALLEST, scales), scales))
    factors = e("reshape", e("reciprocal", scales), shape=(n, k // group, 1))
    whole = e("round", e("mul", weight, e("expand", factors, shape=grouped)))
    numbers = e("minimum", whole, e.full(7.0, whole))
    numbers = e.cast(e("add", numbers, e.full(8.0, numbers)), U8)
    pairs = e("reshape", numbers, shape=(n, k // 2, 2))
    first, second = (
        e("reshape", e("slice", pairs, dim=2, start=part, end=part + 1, step=1), shape=(n, k // 2))
        for part in (0, 1)
    )
    packed = e.kept(e("add", first, e("shl", second, e.full(4, second))))
    halves = (
        e("bit_and", packed, e.full(15, packed)),
        e("shr", packed, e.full(4, packed)),
    )
    apart = [e("reshape", half, shape=(n, k // 2, 1)) for half in halves]
    numbers = e.cast(e("reshape", e("concat", *apart, dim=2), shape=grouped), I8)
    numbers = e.cast(e("sub", numbers, e.full(8, numbers)), F32)
    spread = e("expand", e("reshape", scales, shape=(n, k // group, 1)), shape=grouped)
    return e("reshape", e("mul", numbers, spread), shape=(n, k))


@dataclass(frozen=True)
class Emit:
    """Appends nodes for one node of the old graph."""

    rewriter: Rewriter
    like: Node = field(repr=False)

    def __call__(self, op: str, *operands: Value, **attrs: object) -> Value:
        return self.rewriter.emit(self.like, op, *operands, **attrs)  # type: ignore[reportArgumentType]

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.dtype == dtype else self("cast", value, dtype=dtype)

    def permute(self, value: Value, dims: tuple[int, ...]) -> Value:
        return self("permute", value, dims=dims)

    def full(self, number: float, like: Value) -> Value:
        return self("full", value=number, dtype=like.dtype, shape=like.shape)

    def at_least(self, value: Value, least: float) -> Value:
        """Return the value, but no less than this number; NaN stays."""
        return self("maximum", value, self.full(least, value))

    def spread(self, vector: Value, dim: int, shape: tuple[Dim, ...]) -> Value:
        wide = (*(1 for _ in shape[:dim]), *vector.shape, *(1 for _ in shape[dim + 1 :]))
        return self("expand", self("reshape", vector, shape=wide), shape=shape)

    def kept(self, value: Value) -> Value:
        """Return the value in memory of its own, from which products read it."""
        return self("layout", value, strides=row_major(value.shape))

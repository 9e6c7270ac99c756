"""Products of dequantised tensors become products of their integers; numbers of bf16 products for
f32.

PT2E's exported models multiply (A - za) * x by (B - zb[n]) * w[n], where A (m, k) and B (k, n) are
integers of eight bits, za and x numbers, and zb and w vectors of the model, or numbers too:

    Y = (A @ B - za * sum_k B - zb * sum_k A + k * za * zb) * (x * w)

The sums are exact, in i32. Those of B are computed when weights are packed.
"""

from __future__ import annotations

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import F32, I8, I32, I64, U8
from kernelmill.graph.builder import Rewriter
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.passes.dce import EliminateDeadCode
from kernelmill.passes.quantize import Emit, constant_inputs

_BYTES = (I8, U8)
_LEAST_COLUMNS = 16
_MOST_DEPTH = 1 << 14
"""Sums of so many products and offsets fit into 32 bits."""


@dataclass(frozen=True)
class MultiplyIntegers:
    """Rewrites products of two matrices that are dequantised, the second one a weight."""

    name: str = "multiply-integers"

    def apply(self, graph: Graph) -> Graph:
        weights = constant_inputs(graph)
        found = {
            node: operands
            for node in graph.nodes
            if node.op == "matmul" and (operands := _operands(node, weights)) is not None
        }
        if not found:
            return graph
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            if node in found:
                rewriter.replace(node.result, _product(Emit(rewriter, node), *found[node]))
            else:
                rewriter.keep(node)
        return EliminateDeadCode().apply(rewriter.finish())


@dataclass(frozen=True)
class _Dequantised:
    """(numbers - zero) * scale. The scale and the zero are numbers, or vectors along `axis`."""

    numbers: Value
    scale: Value | float
    zero: Value | float
    axis: int | None


def _operands(node: Node, weights: set[Value]) -> tuple[_Dequantised, _Dequantised] | None:
    """Return both operands, the second one as (n, k); None where the product stays as it is."""
    if len(node.result.shape) != 2 or node.result.dtype != F32:
        return None
    a, b = node.operands
    while a.node is not None and a.node.op == "reshape":
        a = a.node.operands[0]
    if b.node is None or b.node.op != "permute" or b.node.attrs["dims"] != (1, 0):
        return None
    rows, columns = _dequantised(a), _dequantised(b.node.operands[0])
    if rows is None or columns is None or columns.numbers not in weights:
        return None
    if rows.axis is not None or columns.axis == 1:
        return None
    k, n = b.shape
    if not isinstance(k, int) or not isinstance(n, int):
        return None
    return (rows, columns) if n >= _LEAST_COLUMNS and 0 < k <= _MOST_DEPTH else None


def _dequantised(value: Value) -> _Dequantised | None:
    if value.node is None or value.node.op != "mul" or value.dtype != F32:
        return None
    wide, factor = value.node.operands
    numbers, taken = _uncast(wide), None
    if numbers.node is not None and numbers.node.op == "sub" and numbers.dtype in (F32, I32, I64):
        numbers, taken = numbers.node.operands
    numbers = _uncast(numbers)
    scale, zeros = _along(factor), (0.0, None) if taken is None else _along(taken)
    if numbers.dtype not in _BYTES or scale is None or zeros is None:
        return None
    zero = zeros[0]
    whole = isinstance(zero, Value) or (float(zero).is_integer() and abs(zero) <= 255)
    if not whole or (None not in (scale[1], zeros[1]) and scale[1] != zeros[1]):
        return None
    return _Dequantised(numbers, scale[0], zero, zeros[1] if scale[1] is None else scale[1])


def _uncast(value: Value) -> Value:
    """Return what a value is a wider copy of."""
    while value.dtype not in _BYTES and value.node is not None and value.node.op == "cast":
        value = value.node.operands[0]
    return value


def _along(value: Value) -> tuple[Value | float, int | None] | None:
    """Return what a tensor has everywhere, or the vector that it repeats and its axis."""
    node = value.node
    if node is not None and node.op == "full":
        number = node.attrs["value"]
        return (float(number), None) if isinstance(number, int | float) else None
    if node is None or node.op != "expand":
        return None
    (column,) = node.operands
    node = column.node
    if node is None or node.op != "reshape" or len(node.operands[0].shape) != 1:
        return None
    (vector,) = node.operands
    axes = [axis for axis, size in enumerate(column.shape) if size == vector.shape[0] != 1]
    return (vector, axes[0]) if len(axes) == 1 else None


def _product(e: Emit, rows: _Dequantised, columns: _Dequantised) -> Value:
    (m, n), depth = e.like.result.shape, e.like.operands[0].shape[1]
    assert isinstance(depth, int) and not isinstance(rows.zero, Value | str)
    a, low_a = _in_i8(e, rows.numbers)
    b, low_b = _in_i8(e, columns.numbers)
    a, zero = e.kept(e("reshape", a, shape=(m, depth))), int(rows.zero) - low_a
    total = e("matmul", a, e.permute(b, (1, 0)), dtype=I32)
    sums = e("reduce_sum", e.cast(b, I32), dims=(1,))
    zeros = e("sub", _vector(e, columns.zero, sums), e.full(low_b, sums))
    # What depends on the weight alone is computed when it is packed.
    offsets = e("sub", e("mul", zeros, e.full(depth, sums)), sums)
    offsets = e.kept(e("mul", offsets, e.full(zero, sums)))
    total = e("add", total, e.spread(offsets, 1, (m, n)))
    if isinstance(columns.zero, Value) or columns.zero != low_b:
        of_rows = e.spread(e("reduce_sum", e.cast(a, I32), dims=(1,)), 0, (m, n))
        total = e("sub", total, e("mul", of_rows, e.spread(e.kept(zeros), 1, (m, n))))
    scales = _vector(e, columns.scale, e.cast(sums, F32))
    scales = e.kept(e("mul", scales, _vector(e, rows.scale, scales)))
    return e("mul", e.cast(total, F32), e.spread(scales, 1, (m, n)))


def _in_i8(e: Emit, numbers: Value) -> tuple[Value, int]:
    """Return the numbers less 128 where they have no sign, and what was taken away."""
    numbers = e.rewriter.value(numbers)
    if numbers.dtype == I8:
        return numbers, 0
    wide = e.cast(numbers, I32)
    return e.cast(e("sub", wide, e.full(128, wide)), I8), 128


def _vector(e: Emit, number: Value | float, like: Value) -> Value:
    """Return a number in each element, or a vector in the dtype, of another value."""
    if isinstance(number, Value):
        return e.cast(e.rewriter.value(number), like.dtype)
    return e.full(number if like.dtype.is_float else int(number), like)


def multiplies_f32(node: Node) -> bool:
    """Return whether products of bf16 could compute this node."""
    return node.op == "matmul" and node.operands[0].dtype == F32


@dataclass(frozen=True)
class AllowProducts:
    """A pass that sets `products` of all products of f32 to 0, 1 or 3, in place of their own."""

    products: int
    name: str = "allow-products"

    def apply(self, graph: Graph) -> Graph:
        """Return an equivalent graph, or the same one if no product is to be marked."""
        if not any(multiplies_f32(node) for node in graph.nodes):
            return graph
        rewriter = Rewriter(graph)
        for node in graph.nodes:
            if multiplies_f32(node):
                rewriter.keep(node, products=self.products)
            else:
                rewriter.keep(node)
        return rewriter.finish()

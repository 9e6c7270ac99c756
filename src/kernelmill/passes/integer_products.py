"""Replaces products and convolutions of dequantised tensors by those of their integers; numbers of
bf16 products for f32.

PT2E's exported models multiply (A - za) * x by (B - zb[n]) * w[n], where A (m, k) and B (k, n) are
integers of eight bits, za and x numbers, and zb and w vectors of the model, or numbers too. Of a
convolution k are taps and channels, and a border is za:

    Y = (A @ B - za * sum_k B - zb * sum_k A + k * za * zb) * (x * w)

The sums are exact, in i32. Those of B are computed when weights are packed.
"""

from __future__ import annotations

from math import prod

from kernelmill.config.schemes import why_no_convolution, why_not
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import product
from kernelmill.core.dtype import F32, I8, I32, I64, U8
from kernelmill.graph.builder import Rewriter, rewritten
from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.passes.dce import EliminateDeadCode
from kernelmill.passes.quantize import Emit, bordered, constant_inputs, convolved, of_channels

_BYTES = (I8, U8)
_LARGEST_ZERO = 255
_MOST_DEPTH = 1 << 14
"""Sums of so many products and offsets fit into 32 bits."""


@dataclass(frozen=True)
class MultiplyIntegers:
    """Rewrites products of two matrices, and convolutions, that are dequantised, the second one a
    weight."""

    name: str = "multiply-integers"

    def apply(self, graph: Graph) -> Graph:
        weights = constant_inputs(graph)
        found = {
            node: operands
            for node in graph.nodes
            if node.op in ("matmul", "conv") and (operands := _operands(node, weights)) is not None
        }

        def write(rewriter: Rewriter, node: Node) -> Value | None:
            return _product(Emit(rewriter, node), *found[node]) if node in found else None

        return EliminateDeadCode().apply(rewritten(graph, write))


@dataclass(frozen=True)
class _Dequantised:
    """(numbers - zero) * scale. The scale and the zero are numbers, values of one element, or
    vectors along `axis`."""

    numbers: Value
    scale: Value | float
    zero: Value | float
    axis: int | None


def _operands(node: Node, weights: set[Value]) -> tuple[_Dequantised, _Dequantised] | None:
    """Return both operands, the second one as (n, k); None where the product stays as it is."""
    a, b = node.operands
    if node.op == "matmul":
        turned = b.made_by("permute")
        if len(b.shape) != 2 or turned is None:
            return None
        a, (b,) = a.behind("reshape"), turned.operands
    rows, columns = _dequantised(a), _dequantised(b)
    if rows is None or columns is None or columns.numbers not in weights:
        return None
    if rows.axis is not None or columns.axis not in (None, 0):
        return None
    shape = tuple(size for size in b.shape if isinstance(size, int))
    if len(shape) != len(b.shape) or prod(shape[1:]) > _MOST_DEPTH:
        return None
    if node.op == "matmul":
        reason, fits = why_not("int8", shape[1], shape[0]), _is_clamped(rows.zero)
    else:
        # A border is of the zero's number.
        low = -128 if rows.numbers.dtype == I8 else 0
        fits = isinstance(rows.zero, float) and low <= rows.zero < low + 256
        reason, fits = why_no_convolution("int8", shape), fits and node.attrs["groups"] == 1
    return (rows, columns) if fits and not reason else None


def _is_clamped(zero: Value | float) -> bool:
    """Return whether a zero is a number, or clamped to integers that sums have room for."""
    if not isinstance(zero, Value):
        return True
    for op in ("minimum", "maximum"):
        node = zero.behind("cast", "reshape").made_by(op)
        if node is None:
            return False
        limit, zero = node.operands
        if not isinstance(limit.number, int) or abs(limit.number) > _LARGEST_ZERO:
            return False
    return not zero.dtype.is_float


def _dequantised(value: Value) -> _Dequantised | None:
    node = value.made_by("mul")
    if node is None or value.dtype != F32:
        return None
    wide, factor = node.operands
    numbers, taken = _uncast(wide), None
    if (node := numbers.made_by("sub")) is not None and numbers.dtype in (F32, I32, I64):
        numbers, taken = node.operands
    numbers = _uncast(numbers)
    scale, zeros = _along(factor), (0.0, None) if taken is None else _along(taken)
    if numbers.dtype not in _BYTES or scale is None or zeros is None:
        return None
    zero = zeros[0]
    whole = isinstance(zero, Value) or (float(zero).is_integer() and abs(zero) <= _LARGEST_ZERO)
    if not whole or (None not in (scale[1], zeros[1]) and scale[1] != zeros[1]):
        return None
    return _Dequantised(numbers, scale[0], zero, zeros[1] if scale[1] is None else scale[1])


def _uncast(value: Value) -> Value:
    """Return the narrower value of which a value is a copy."""
    while value.dtype not in _BYTES and (node := value.made_by("cast")) is not None:
        (value,) = node.operands
    return value


def _along(value: Value) -> tuple[Value | float, int | None] | None:
    """Return the constant value of a tensor, or the vector that it repeats and its axis."""
    if isinstance(value.number, int | float):
        return float(value.number), None
    node = value.made_by("expand")
    if node is None:
        return None
    (column,) = node.operands
    if product(column.shape) == 1:
        return column, None
    node = column.made_by("reshape")
    if node is None or len(node.operands[0].shape) != 1:
        return None
    (vector,) = node.operands
    axes = [axis for axis, size in enumerate(column.shape) if size == vector.shape[0] != 1]
    return (vector, axes[0]) if len(axes) == 1 else None


def _product(e: Emit, rows: _Dequantised, columns: _Dequantised) -> Value:
    (a, low_a), (b, low_b) = _in_i8(e, rows.numbers), _in_i8(e, columns.numbers)
    outputs, depth, shape = b.shape[0], product(b.shape[1:]), e.like.result.shape
    assert isinstance(depth, int)
    if e.like.op == "matmul":
        a = e.kept(e("reshape", a, shape=(shape[0], depth)))
        total = e("matmul", a, e.permute(b, (1, 0)), dtype=I32)
    else:
        assert not isinstance(rows.zero, Value)
        a = bordered(e, a, int(rows.zero) - low_a)
        total = convolved(e, a, b)
    sums = e("reshape", e.cast(b, I32), shape=(outputs, depth))
    sums = e("reduce_sum", sums, dims=(1,))
    zeros = e("sub", _vector(e, columns.zero, sums), e.full(low_b, sums))
    if isinstance(columns.zero, Value) or columns.zero != low_b:
        of_zeros = e("mul", _sums(e, a), e.spread(e.kept(zeros), 1, shape))
        total = e("sub", total, of_zeros)
    offsets = e("sub", e("mul", zeros, e.full(depth, sums)), sums)
    zero = e("sub", _vector(e, rows.zero, sums), e.full(low_a, sums))
    offsets = _times(e, offsets, zero, rows.zero)
    scales = _vector(e, columns.scale, e.cast(sums, F32))
    scales = _times(e, scales, _vector(e, rows.scale, scales), rows.scale)
    return of_channels(e, total, offsets, scales)


def _times(e: Emit, of_weight: Value, by: Value, number: Value | float) -> Value:
    """Multiply what depends on the weight alone, computed when it is packed, by a number, which a
    call may find."""
    if isinstance(number, Value):
        return e("mul", e.kept(of_weight), by)
    return e.kept(e("mul", of_weight, by))


def _sums(e: Emit, a: Value) -> Value:
    """Return the sums of the rows of integers that a product reads, or of the windows."""
    total, node = e("reduce_sum", e.cast(a, I32), dims=(1,)), e.like
    if node.op == "matmul":
        return e.spread(total, 0, node.result.shape)
    kernel, (images, _, *sizes) = node.operands[1].shape[2:], node.result.shape
    rank, none = len(kernel), (0,) * len(kernel)
    around = e(
        "window", total, dims=tuple(range(1, rank + 1)), size=kernel, stride=node.attrs["stride"],
        dilation=node.attrs["dilation"], low=none, high=none, value=0,
    )  # fmt: skip
    total = e("reduce_sum", around, dims=tuple(range(rank + 1, 2 * rank + 1)))
    total = e.kept(e("reshape", total, shape=(images, 1, *sizes)))
    return e("expand", total, shape=node.result.shape)


def _in_i8(e: Emit, numbers: Value) -> tuple[Value, int]:
    """Return the numbers less 128 where they have no sign, and what was taken away."""
    numbers = e.rewriter.value(numbers)
    if numbers.dtype == I8:
        return numbers, 0
    wide = e.cast(numbers, I32)
    return e.cast(e("sub", wide, e.full(128, wide)), I8), 128


def _vector(e: Emit, number: Value | float, like: Value) -> Value:
    """Return a number in each element, or a vector in the dtype, of another value."""
    if not isinstance(number, Value):
        return e.full(number if like.dtype.is_float else int(number), like)
    found = e.cast(e.rewriter.value(number), like.dtype)
    if product(found.shape) == 1:
        return e("expand", e("reshape", found, shape=(1,)), shape=like.shape)
    return found


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
            rewriter.keep(node, **({"products": self.products} if multiplies_f32(node) else {}))
        return rewriter.finish()

"""Reads through index tensors, and writes as functions: the input with the addressed elements
changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BOOL, I64, U8, DType, to_torch
from kernelmill.frontend.aten.sources import index_ramp
from kernelmill.frontend.aten.views import concat, sign_known, slice_start
from kernelmill.frontend.emitter import (
    Emitter,
    NotTranslated,
    Number,
    Operand,
    common_shape,
    translates,
    wrap,
)
from kernelmill.graph.ir import Combine, Value


def as_index(e: Emitter, index: Value) -> Value:
    """Return an index tensor as i64."""
    if index.dtype in (BOOL, U8):
        raise NotTranslated("a mask as index: the result's size depends on its values")
    return e.cast(index, I64)


def at_least_1d(e: Emitter, x: Value) -> Value:
    """Reshape a 0-d tensor to one element in 1-d, as these operators take it."""
    return x if x.shape else e.reshape(x, (1,))


def lookup(e: Emitter, x: Value, indices: Sequence[Value | None]) -> tuple[tuple[int, ...], int]:
    """Return the indexed dims, and the place of the indices' shape in the result, as in NumPy."""
    dims = tuple(d for d, index in enumerate(indices) if index is not None)
    adjacent = dims == tuple(range(dims[0], dims[-1] + 1))
    return dims, dims[0] if adjacent else 0


def shaped_indices(e: Emitter, indices: Sequence[Value | None]) -> list[Value]:
    """Return the index tensors that are not None, as i64, expanded to one common shape."""
    present = [as_index(e, index) for index in indices if index is not None]
    shape = common_shape([index.shape for index in present])
    return [e.expand(index, shape) for index in present]


@translates("index.Tensor", "_unsafe_index.Tensor")
def index(e: Emitter, x: Value, indices: Sequence[Value | None]) -> Value:
    if all(entry is None for entry in indices):
        return x
    dims, at = lookup(e, x, indices)
    return e.emit("index", x, *shaped_indices(e, indices), dims=dims, at=at)


@translates("embedding.default")
def embedding(
    e: Emitter,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return e.emit("index", weight, as_index(e, indices), dims=(0,), at=0, unsigned=True)


@translates("index_select.default")
def index_select(e: Emitter, x: Value, dim: int, indices: Value) -> Value:
    x, positions = at_least_1d(e, x), at_least_1d(e, as_index(e, indices))
    dim = wrap(dim, len(x.shape))
    found = e.emit("index", x, positions, dims=(dim,), at=dim, unsigned=True)
    return e.reshape(found, e.shape)


@translates("gather.default")
def gather(e: Emitter, x: Value, dim: int, indices: Value, *, sparse_grad: bool = False) -> Value:
    x, positions = at_least_1d(e, x), at_least_1d(e, as_index(e, indices))
    found = e.emit("gather", x, positions, dim=wrap(dim, len(x.shape)), unsigned=True)
    return e.reshape(found, e.shape)


_MODES = {
    "sum": Combine.ADD, "add": Combine.ADD, "prod": Combine.MUL, "multiply": Combine.MUL,
    "amax": Combine.MAX, "amin": Combine.MIN, "mean": Combine.ADD,
}  # fmt: skip


# ---- scatter ----------------------------------------------------------------------------------


def _scatter(e: Emitter, x: Value, dim: int, index: Value, source: Value, mode: Combine) -> Value:
    """Emit a scatter. Sums and products of half types are rounded when complete, as eager's are:
    rounded one by one, a sum would stop growing at terms below half of its last digit."""
    if x.dtype == BOOL and mode is not Combine.SET:
        raise NotTranslated("scatter with arithmetic on bools")
    narrow = x.dtype
    if mode is not Combine.SET:
        x, source = (e.cast(value, narrow.compute) for value in (x, source))
    x, positions, source = (at_least_1d(e, value) for value in (x, as_index(e, index), source))
    rank = len(x.shape)
    for d, size in enumerate(positions.shape):
        source = e.slice(source, d, 0, size)
    source, dim = e.cast(source, x.dtype), wrap(dim, rank)
    whole = _one_index(e, positions, x, dim)
    if whole is None:
        result = e.emit("scatter", x, positions, source, dim=dim, mode=mode, unsigned=True)
    else:
        options = {"dims": (dim,), "at": dim, "mode": mode, "unsigned": True}
        result = e.emit("index_put", x, source, whole, **options)
    return e.reshape(e.cast(result, narrow), e.shape)


def _one_index(e: Emitter, positions: Value, x: Value, dim: int) -> Value | None:
    """Return the index of whole slices, if all elements of each slice have the same index."""
    node, others = positions.node, [d for d in range(len(x.shape)) if d != dim]
    if node is None or node.op != "expand" or not others:
        return None
    index = node.operands[0]
    alike = len(index.shape) == len(x.shape) and all(index.shape[d] == 1 for d in others)
    if not alike or any(positions.shape[d] != x.shape[d] for d in others):
        return None
    return e.reshape(index, (index.shape[dim],))


@translates("scatter.src", "scatter.reduce", "scatter.value", "scatter.value_reduce")
def scatter(
    e: Emitter, x: Value, dim: int, index: Value, source: Operand, *, reduce: str | None = None
) -> Value:
    if not isinstance(source, Value):
        source = e.constant(source, x.dtype, index.shape)
    return _scatter(e, x, dim, index, source, Combine.SET if reduce is None else _MODES[reduce])


@translates("scatter_add.default")
def scatter_add(e: Emitter, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter(e, x, dim, index, source, Combine.ADD)


@translates("scatter_reduce.two")
def scatter_reduce(
    e: Emitter,
    x: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Value:
    """Scatter with a reduction; without the input itself, it starts at the neutral element."""
    narrow, mode = x.dtype, _MODES[reduce]
    if reduce == "mean":
        x, source = e.wide(x), e.wide(source)
    if not include_self:
        neutral = e.constant(_neutral(mode, x.dtype), x.dtype, index.shape)
        x = _scatter(e, x, dim, index, neutral, Combine.SET)
    total = _scatter(e, x, dim, index, source, mode)
    if reduce != "mean":
        return total
    itself, ones = (
        e.constant(number, x.dtype, shape)
        for number, shape in ((int(include_self), x.shape), (1, index.shape))
    )
    count = e.clamp(_scatter(e, itself, dim, index, ones, mode), 1, None)
    divide = "div" if x.dtype.is_float else "floordiv"
    return e.cast(e.emit(divide, total, count), narrow)


def _neutral(mode: Combine, dtype: DType) -> int | float:
    """Return the neutral element of a combination: the lowest number for the largest."""
    if mode in (Combine.ADD, Combine.MUL):
        return int(mode is Combine.MUL)
    if dtype.is_float:
        return -math.inf if mode is Combine.MAX else math.inf
    if dtype == BOOL:
        return mode is not Combine.MAX
    limits = torch.iinfo(to_torch(dtype))
    return limits.min if mode is Combine.MAX else limits.max


# ---- index_put and its relatives --------------------------------------------------------------


@translates("index_put.default", "_unsafe_index_put.default")
def index_put(
    e: Emitter,
    x: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
) -> Value:
    masked = _masked_put(e, x, indices, values, accumulate)
    if masked is not None:
        return masked
    if all(entry is None for entry in indices) or (x.dtype == BOOL and accumulate):
        raise NotTranslated("index_put without an index or with sums of bools")
    dims, at = lookup(e, x, indices)
    positions = shaped_indices(e, indices)
    kept = [size for d, size in enumerate(x.shape) if d not in dims]
    shape = (*kept[:at], *positions[0].shape, *kept[at:])
    values = e.expand(_drop_leading_ones(e, e.cast(values, x.dtype), len(shape)), shape)
    mode = Combine.ADD if accumulate else Combine.SET
    return e.emit("index_put", x, values, *positions, dims=dims, at=at, mode=mode)


def _masked_put(
    e: Emitter, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value | None:
    """Emit a `where` for `x[mask] = number`, which needs no index."""
    mask = indices[0]
    if len(indices) != 1 or mask is None or mask.dtype != BOOL or values.type.elements != 1:
        return None
    if accumulate:
        raise NotTranslated("sums through a mask")
    spread = e.reshape(mask, (*mask.shape, *([1] * (len(x.shape) - len(mask.shape)))))
    return e.pointwise("where", spread, e.reshape(e.cast(values, x.dtype), ()), x)


def _drop_leading_ones(e: Emitter, values: Value, rank: int) -> Value:
    extra = len(values.shape) - rank
    return e.reshape(values, values.shape[extra:]) if extra > 0 else values


def _put_along(
    e: Emitter,
    x: Value,
    dim: int,
    index: Value,
    values: Value,
    mode: Combine,
    unsigned: bool = True,
) -> Value:
    """Return x with its slices index[i] along `dim` set to, or increased by, slice i of values."""
    if x.dtype == BOOL and mode is Combine.ADD:
        raise NotTranslated("sums of bools")
    x, values = at_least_1d(e, x), at_least_1d(e, values)
    dim = wrap(dim, len(x.shape))
    positions = e.reshape(as_index(e, index), (index.type.elements,))
    shape = (*x.shape[:dim], positions.shape[0], *x.shape[dim + 1 :])
    values = e.expand(e.cast(values, x.dtype), shape)
    result = e.emit(
        "index_put", x, values, positions, dims=(dim,), at=dim, mode=mode, unsigned=unsigned
    )
    return e.reshape(result, e.shape)


@translates("index_add.default")
def index_add(
    e: Emitter, x: Value, dim: int, index: Value, source: Value, *, alpha: Number = 1
) -> Value:
    if alpha != 1:
        source = e.mul(e.cast(source, x.dtype), alpha)
    return _put_along(e, x, dim, index, source, Combine.ADD)


@translates("index_copy.default")
def index_copy(e: Emitter, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _put_along(e, x, dim, index, source, Combine.SET)


@translates("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(e: Emitter, x: Value, dim: int, index: Value, value: Operand) -> Value:
    # The one of these in which eager counts negative indices from the end.
    filled = e.operand(value, x.dtype)
    return _put_along(e, x, dim, index, filled, Combine.SET, unsigned=False)


@translates("embedding_dense_backward.default")
def embedding_dense_backward(
    e: Emitter,
    grad: Value,
    indices: Value,
    num_weights: Dim,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Value:
    """Sum the gradients of each row, except those of the padding row."""
    if scale_grad_by_freq:
        raise NotTranslated("embedding gradient scaled by frequency")
    positions = as_index(e, indices)
    if padding_idx >= 0:
        padding = e.unsqueeze(e.compare("eq", positions, padding_idx), len(positions.shape))
        grad = e.where(padding, 0, grad)
    zeros = e.constant(0, e.dtype, e.shape)
    return e.emit(
        "index_put", zeros, e.cast(grad, e.dtype), positions, dims=(0,), at=0, mode=Combine.ADD
    )


# ---- writes into slices -----------------------------------------------------------------------


@translates("slice_scatter.default")
def slice_scatter(
    e: Emitter,
    x: Value,
    source: Value,
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: int = 1,
) -> Value:
    dim = wrap(dim, len(x.shape))
    first = slice_start(e, x.shape[dim], start)
    source = e.cast(source, x.dtype)
    if step != 1:
        positions = index_ramp(e, first, source.shape[dim], step)
        return _put_along(e, x, dim, positions, source, Combine.SET)
    return _replace(e, x, source, dim, first)


def _replace(e: Emitter, x: Value, source: Value, dim: int, first: Dim) -> Value:
    """Return x with source from `first` along `dim` on: a join, which fuses as views do."""
    last, size = first + source.shape[dim], x.shape[dim]
    before = [e.slice(x, dim, 0, first)] if first != 0 else []
    after = [e.slice(x, dim, last, size)] if last != size else []
    written = [source] if source.shape[dim] != 0 else []
    return concat(e, [*before, *written, *after], dim)


@translates("select_scatter.default")
def select_scatter(e: Emitter, x: Value, source: Value, dim: int, index: Dim) -> Value:
    dim = wrap(dim, len(x.shape))
    if sign_known(index) < 0:
        index = x.shape[dim] + index
    source = e.unsqueeze(e.cast(source, x.dtype), dim)
    return _replace(e, x, source, dim, index)

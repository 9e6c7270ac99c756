"""Views, and operators that join tensors. The traced shape resolves sizes of -1; only slicing needs
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import (
    Dim,
    Expr,
    bounds,
    maximum,
    mod,
    product,
    provably_less,
    provably_nonnegative,
)
from kernelmill.frontend.emitter import Emitter, NotTranslated, Number, translates, wrap
from kernelmill.graph.ir import Value, row_major


@translates("view.default", "reshape", "_unsafe_view", "view_copy.default", "_reshape_alias")
@translates("squeeze", "unsqueeze", "squeeze_copy", "unsqueeze_copy", "flatten", "unflatten")
@translates("_reshape_copy", "prims.view_of", "prims.collapse_view", "prims.split_dim")
def reshape(e: Emitter, x: Value, *sizes: object) -> Value:
    return e.reshape(x, e.shape)


@translates("expand", "expand_copy", "broadcast_to", "expand_as")
def expand(e: Emitter, x: Value, *sizes: object, implicit: bool = False) -> Value:
    return e.expand(x, e.shape)


@translates("prims.broadcast_in_dim")
def broadcast_in_dim(e: Emitter, x: Value, shape: Sequence[Dim], dims: Sequence[int]) -> Value:
    spread: list[Dim] = [1] * len(e.shape)
    for size, d in zip(x.shape, dims, strict=True):
        spread[d] = size
    return e.expand(e.reshape(x, spread), e.shape)


@translates("permute", "permute_copy", "prims.transpose")
def permute(e: Emitter, x: Value, dims: Sequence[int]) -> Value:
    return e.permute(x, [wrap(d, len(x.shape)) for d in dims])


@translates("transpose.int", "transpose_copy.int", "swapaxes")
def transpose(e: Emitter, x: Value, a: int, b: int) -> Value:
    rank = len(x.shape)
    dims = list(range(rank))
    if rank:
        a, b = wrap(a, rank), wrap(b, rank)
        dims[a], dims[b] = dims[b], dims[a]
    return e.permute(x, dims)


@translates("t", "t_copy", "numpy_T", "mT")
def t(e: Emitter, x: Value) -> Value:
    rank = len(x.shape)
    return e.permute(x, range(rank)) if rank < 2 else transpose(e, x, -2, -1)


# ---- slices -----------------------------------------------------------------------------------


def sign_known(index: Dim) -> int:
    """Return 1 when index >= 0, -1 when it is negative; NotTranslated if that is unknown."""
    if provably_nonnegative(index):
        return 1
    high = bounds(index)[1]
    if high is not None and high < 0:
        return -1
    raise NotTranslated(f"the sign of the index {index} is not known")


def slice_start(e: Emitter, size: Dim, start: Dim | None) -> Dim:
    """Return the start, 0 <= start <= size, of a Python slice; its length is that of the trace."""
    return 0 if start is None else e.symbols.clamped(start, size)


@translates("slice.Tensor", "slice_copy.Tensor")
def slice_(
    e: Emitter,
    x: Value,
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: int = 1,
) -> Value:
    dim = wrap(dim, len(x.shape))
    if isinstance(step, Expr):
        raise NotTranslated("a slice with a symbolic step")
    first, count = slice_start(e, x.shape[dim], start), e.shape[dim]
    last = first + count if step == 1 else first + (count - 1) * step + 1
    return e.slice(x, dim, first, first if count == 0 else last, step)


@translates("select.int", "select_copy.int")
def select(e: Emitter, x: Value, dim: int, index: Dim) -> Value:
    dim = wrap(dim, len(x.shape))
    if sign_known(index) < 0:
        index = x.shape[dim] + index
    if not e.symbols.less(index, x.shape[dim]):
        raise NotTranslated(f"select {index} of {x.shape[dim]} may be out of range")
    return e.select(x, dim, index)


@translates("narrow", "narrow_copy")
def narrow(e: Emitter, x: Value, dim: int, start: Dim, length: Dim) -> Value:
    dim = wrap(dim, len(x.shape))
    if sign_known(start) < 0:
        start = x.shape[dim] + start
    return e.slice(x, dim, start, start + length)


@translates("split.Tensor", "split_with_sizes", "split_copy.Tensor", "split_with_sizes_copy")
@translates("unsafe_split.Tensor", "unsafe_split_with_sizes", "chunk", "tensor_split")
def split(e: Emitter, x: Value, sizes: object, dim: int = 0) -> list[Value | None]:
    dim = wrap(dim, len(x.shape))
    parts: list[Value | None] = []
    start: Dim = 0
    for kind, used in zip(e.out, e.used, strict=True):
        end = start + kind.shape[dim]
        # Unused parts are not sliced.
        parts.append(e.slice(x, dim, start, end) if used else None)
        start = end
    return parts


@translates("unbind.int", "unbind_copy.int")
def unbind(e: Emitter, x: Value, dim: int = 0) -> list[Value | None]:
    dim = wrap(dim, len(x.shape))
    return [e.select(x, dim, i) if used else None for i, used in enumerate(e.used)]


@translates("unfold", "unfold_copy")
def unfold(e: Emitter, x: Value, dim: int, size: int, step: int) -> Value:
    if not x.shape:
        raise NotTranslated("unfold of a 0-d tensor")
    return e.emit(
        "window", x, dims=(wrap(dim, len(x.shape)),), size=(size,), stride=(step,),
        dilation=(1,), low=(0,), high=(0,), value=0,
    )  # fmt: skip


@translates("diagonal", "diagonal_copy")
def diagonal(e: Emitter, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    rank = len(x.shape)
    x = e.move_to_end(x, (wrap(dim1, rank), wrap(dim2, rank)))
    strides = row_major(x.shape)
    start = offset * strides[-1] if offset >= 0 else -offset * strides[-2]
    return e.emit(
        "as_strided", x, shape=e.shape, strides=(*strides[:-2], strides[-2] + strides[-1]),
        offset=start,
    )  # fmt: skip


@translates("as_strided", "as_strided_copy")
def as_strided(
    e: Emitter, x: Value, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None = None
) -> Value:
    """Emit a view of a tensor that was traced as row-major from the start of its memory."""
    if x.node is None:
        raise NotTranslated("a view of an argument's memory")
    start = 0 if offset is None else offset
    last = start
    for n, step in zip(size, stride, strict=True):
        last = last + (n - 1) * step
    if 0 not in size and not provably_less(last, product(x.shape)):
        # ATen says so where a call's memory is too short.
        raise NotTranslated("a view that may reach beyond the memory")
    return e.emit("as_strided", x, shape=e.shape, strides=tuple(stride), offset=start)


@translates("flip")
def flip(e: Emitter, x: Value, dims: Sequence[int]) -> Value:
    rank = len(x.shape)
    if not rank or not dims:
        return x
    return e.emit("flip", x, dims=tuple(sorted(wrap(d, rank) for d in dims)))


def concat(e: Emitter, parts: Sequence[Value], dim: int) -> Value:
    return parts[0] if len(parts) == 1 else e.emit("concat", *parts, dim=dim)


@translates("cat", "concat", "prims.cat")
def cat(e: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    rank = len(e.shape)
    dim = wrap(dim, rank)
    # An empty 1-d tensor goes with any rank, for the sake of old programs.
    parts = [x for x in tensors if len(x.shape) == rank and x.shape[dim] != 0]
    if not parts:
        return e.constant(0, e.dtype, e.shape)
    return concat(e, [e.cast(x, e.dtype) for x in parts], dim)


@translates("stack")
def stack(e: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    dim = wrap(dim, len(e.shape))
    return concat(e, [e.unsqueeze(e.cast(x, e.dtype), dim) for x in tensors], dim)


@translates("repeat")
def repeat(e: Emitter, x: Value, repeats: Sequence[Dim]) -> Value:
    lead = len(repeats) - len(x.shape)
    sizes: list[Dim] = [1] * lead + list(x.shape)
    thin: list[Dim] = []
    wide: list[Dim] = []
    for size, times in zip(sizes, repeats, strict=True):
        thin += [1, size]
        wide += [times, size]
    return e.reshape(e.expand(e.reshape(x, thin), wide), e.shape)


@translates("roll")
def roll(e: Emitter, x: Value, shifts: Sequence[Dim], dims: Sequence[int] = ()) -> Value:
    if 0 in x.shape:
        return x
    if not dims:
        flat = e.reshape(x, (x.type.elements,))
        return e.reshape(_roll_one(e, flat, shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _roll_one(e, x, shift, wrap(dim, len(x.shape)))
    return x


def _roll_one(e: Emitter, x: Value, shift: Dim, dim: int) -> Value:
    size = x.shape[dim]
    cut = mod(size - shift, maximum(size, 1))
    if cut == 0:
        return x
    return concat(e, [e.slice(x, dim, cut, size), e.slice(x, dim, 0, cut)], dim)


@translates("constant_pad_nd")
def constant_pad(e: Emitter, x: Value, amounts: Sequence[Dim], value: Number = 0) -> Value:
    """Pad by `amounts`: (low, high) of the last dim, then the one before; negative ones crop."""
    rank = len(x.shape)
    low: list[Dim] = [0] * rank
    high: list[Dim] = [0] * rank
    for i in range(len(amounts) // 2):
        d = rank - 1 - i
        below, above = amounts[2 * i], amounts[2 * i + 1]
        low[d], high[d] = maximum(below, 0), maximum(above, 0)
        x = e.slice(x, d, maximum(-below, 0), x.shape[d] - maximum(-above, 0))
    if not isinstance(value, (bool, int, float)):
        raise NotTranslated("padding with a value known only while running")
    return e.pad(x, low, high, value)


@translates("slice_backward")
def slice_backward(
    e: Emitter,
    grad: Value,
    sizes: Sequence[Dim],
    dim: int,
    start: Dim,
    end: Dim,
    step: int,
) -> Value:
    dim = wrap(dim, len(sizes))
    if step != 1:
        raise NotTranslated("backward of a slice with a step")
    first = slice_start(e, sizes[dim], start)
    return _pad_dim(e, grad, dim, first, sizes[dim] - first - grad.shape[dim])


@translates("select_backward")
def select_backward(e: Emitter, grad: Value, sizes: Sequence[Dim], dim: int, index: Dim) -> Value:
    dim = wrap(dim, len(sizes))
    if sign_known(index) < 0:
        index = sizes[dim] + index
    return _pad_dim(e, e.unsqueeze(grad, dim), dim, index, sizes[dim] - index - 1)


def _pad_dim(e: Emitter, x: Value, dim: int, low: Dim, high: Dim) -> Value:
    rank = len(x.shape)
    lows: list[Dim] = [low if d == dim else 0 for d in range(rank)]
    highs: list[Dim] = [high if d == dim else 0 for d in range(rank)]
    return e.pad(x, lows, highs, 0)

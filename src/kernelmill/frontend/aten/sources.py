"""Tensors made without operands: full, arange, eye, triangles, and random numbers as eager's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BOOL, F64, I64, to_torch
from kernelmill.frontend.context import memory_order
from kernelmill.frontend.emitter import Computed, Emitter, NotTranslated, Number, translates
from kernelmill.graph.ir import TensorType, Value


@translates("full", "full_like", "new_full")
def full(e: Emitter, shape_or_like: object, *args: Any, **kwargs: Any) -> Value:
    """Emit full(size, value), full_like(x, value) or new_full(x, size, value): value is last."""
    return e.constant(args[-1], e.dtype, e.shape)


@translates("scalar_tensor")
def scalar_tensor(e: Emitter, value: Number, **kwargs: Any) -> Value:
    return e.constant(value, e.dtype)


@translates("zeros", "zeros_like", "new_zeros", "zero")
def zeros(e: Emitter, *args: Any, **kwargs: Any) -> Value:
    return e.constant(0, e.dtype, e.shape)


@translates("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
@translates("empty_permuted", "prims.empty_strided")
def empty(e: Emitter, *args: Any, **kwargs: Any) -> Value:
    """Emit zeros, or, if algorithms are to be deterministic, the fill of eager: NaN, True, or the
    largest integer."""
    settings: Any = torch.utils.deterministic
    mode = e.builder.deterministic
    mode = torch.get_deterministic_debug_mode() if mode is None else mode
    if not (settings.fill_uninitialized_memory and mode):
        return e.constant(0, e.dtype, e.shape)
    if e.dtype.is_float:
        return e.constant(math.nan, e.dtype, e.shape)
    largest = True if e.dtype == BOOL else torch.iinfo(to_torch(e.dtype)).max
    return e.constant(largest, e.dtype, e.shape)


@translates("ones", "ones_like", "new_ones")
def ones(e: Emitter, *args: Any, **kwargs: Any) -> Value:
    return e.constant(1, e.dtype, e.shape)


@translates("arange.start_step", "arange.start", "arange.default")
def arange(e: Emitter, *bounds: Number, **kwargs: Any) -> Value:
    start: Number = bounds[0] if len(bounds) > 1 else 0
    step: Number = bounds[2] if len(bounds) > 2 else 1
    return _ramp(e, start, step)


@translates("prims.iota")
def iota(e: Emitter, length: Dim, *, start: Dim, step: Dim, **kwargs: Any) -> Value:
    return _ramp(e, start, step)


def _ramp(e: Emitter, start: Number, step: Number) -> Value:
    """Emit start + step * index: in i64 for integers, in f64 for floats (eager's counting type)."""
    if any(isinstance(bound, Computed) for bound in (start, step)):
        raise NotTranslated("arange over numbers known only while running")
    kind = F64 if e.dtype.is_float else I64
    ramp = e.cast(e.iota(e.shape, 0), kind)
    if not _is_number(step, 1):
        ramp = e.mul(ramp, step)
    if not _is_number(start, 0):
        ramp = e.add(ramp, start)
    return e.cast(ramp, e.dtype)


def _is_number(number: Number, value: int) -> bool:
    return isinstance(number, (int, float)) and number == value


@translates("linspace.default")
def linspace(e: Emitter, start: Number, end: Number, steps: Dim, **kwargs: Any) -> Value:
    """Count from both ends, as eager does, so that the last element is `end` exactly."""
    known = isinstance(start, (int, float)) and isinstance(end, (int, float))
    if not known or not e.dtype.is_float or not isinstance(steps, int):
        raise NotTranslated("linspace of integers or of numbers known only while running")
    kind = e.dtype.compute
    index = e.iota(e.shape, 0)
    if steps < 2:
        return e.constant(start, e.dtype, e.shape)
    step = e.div(e.sub(e.constant(end, kind), start), steps - 1)
    rising = e.add(e.mul(e.cast(index, kind), step), start)
    left = e.cast(e.sub(e.constant(steps - 1, I64, e.shape), index), kind)
    falling = e.sub(e.constant(end, kind, e.shape), e.mul(left, step))
    return e.cast(e.where(e.compare("lt", index, steps // 2), rising, falling), e.dtype)


@translates("eye")
def eye(e: Emitter, *sizes: Dim, **kwargs: Any) -> Value:
    return e.cast(e.compare("eq", e.iota(e.shape, 0), e.iota(e.shape, 1)), e.dtype)


@translates("tril")
def tril(e: Emitter, x: Value, diagonal: Dim = 0) -> Value:
    return _triangle(e, x, "le", diagonal)


@translates("triu")
def triu(e: Emitter, x: Value, diagonal: Dim = 0) -> Value:
    return _triangle(e, x, "ge", diagonal)


def _triangle(e: Emitter, x: Value, op: str, diagonal: Dim) -> Value:
    """Keep the elements whose column `op` row + diagonal; others become zero."""
    plane = x.shape[-2:]
    row, column = e.iota(plane, 0), e.iota(plane, 1)
    if diagonal != 0:
        row = e.add(row, diagonal)
    keep = e.compare(op, column, row)
    if x.dtype == BOOL:
        return e.pointwise("bit_and", x, keep)
    return e.where(keep, x, 0)


def index_ramp(e: Emitter, start: Dim, count: Dim, step: int = 1) -> Value:
    """Emit the i64 indices start, start + step, ... (count of them)."""
    ramp = e.iota((count,), 0)
    if step != 1:
        ramp = e.mul(ramp, step)
    return ramp if start == 0 else e.add(ramp, start)


def spread(e: Emitter, index: Value, shape: Sequence[Dim], dim: int) -> Value:
    """Expand a 1-d index along `dim` to `shape`."""
    return e.expand(e.align(index, len(shape), dim), shape)


@translates("native_dropout.default")
def native_dropout(
    e: Emitter, x: Value, p: float, train: bool | None
) -> tuple[Value, Value | None]:
    """Emit eager's functional dropout on CPU: noise = bernoulli(1 - p) / (1 - p); x * noise."""
    if not train or p == 0:
        return x, e.constant(True, BOOL, x.shape)
    if p >= 1 or not x.dtype.is_float:
        raise NotTranslated("dropout of everything, or of integers")
    kept = 1 - p
    # The generator fills memory in its order, which is that of the traced tensor.
    order = memory_order(e.out[0])
    kind = TensorType(x.dtype, tuple(x.shape[d] for d in order))
    (blank,) = e.aten(
        "aten.empty.memory_format", (kind.shape,), (kind,), "random numbers", dtype=x.dtype
    )
    (drawn,) = e.aten("aten.bernoulli.p", (blank, kept), (kind,), "random numbers")
    noise = e.permute(drawn, [order.index(d) for d in range(len(order))])
    mask = e.emit("cast", noise, dtype=BOOL)
    scale = e.cast(e.div(e.wide(noise), kept), x.dtype)
    return e.mul(x, scale), mask


@translates("native_dropout_backward.default")
def native_dropout_backward(e: Emitter, grad: Value, mask: Value, scale: float) -> Value:
    factor = e.mul(e.cast(mask, e.dtype.compute), scale)
    return e.cast(e.mul(e.wide(grad), factor), e.dtype)

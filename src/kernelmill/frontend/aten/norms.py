"""Normalisations: layer, group, RMS and batch norm. Backwards come from torch's decompositions,
except layer norm's, which training of every transformer runs."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim, product
from kernelmill.core.dtype import F16, DType
from kernelmill.frontend.aten.reductions import moments
from kernelmill.frontend.emitter import Emitter, Number, translates
from kernelmill.graph.ir import Value


def _scale_and_shift(e: Emitter, x: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None:
        x = e.mul(x, e.cast(weight, x.dtype))
    return x if bias is None else e.add(x, e.cast(bias, x.dtype))


def _standardised(
    e: Emitter, x: Value, dims: Sequence[int], eps: Number, bounded: bool
) -> tuple[Value, Value, Value]:
    """Return (normalised, mean, 1 / deviation), the last two with the dims kept."""
    variance, mean = moments(e, x, dims, bounded=bounded)
    rstd = e.emit("rsqrt", e.add(variance, eps))
    return e.mul(e.sub(x, mean), rstd), mean, rstd


def _may_overflow(x: Value) -> bool:
    """Return whether a sum of finite elements can overflow in the type that norms are computed in;
    eager updates a running mean, which cannot."""
    return x.dtype != F16


def _as_traced(e: Emitter, *values: Value) -> tuple[Value, ...]:
    return tuple(
        e.cast(e.reshape(value, kind.shape), kind.dtype)
        for value, kind in zip(values, e.out, strict=True)
    )


@translates("native_layer_norm")
def layer_norm(
    e: Emitter,
    x: Value,
    shape: Sequence[Dim],
    weight: Value | None,
    bias: Value | None,
    eps: Number,
) -> tuple[Value, ...]:
    rank = len(x.shape)
    dims = range(rank - len(shape), rank)
    normal, mean, rstd = _standardised(e, e.wide(x), dims, eps, _may_overflow(x))
    return _as_traced(e, _scale_and_shift(e, normal, weight, bias), mean, rstd)


@translates("native_layer_norm_backward")
def layer_norm_backward(
    e: Emitter,
    grad: Value,
    x: Value,
    shape: Sequence[Dim],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    rank = len(x.shape)
    outer, inner = range(rank - len(shape)), range(rank - len(shape), rank)
    g, wide = e.wide(grad), e.wide(x)
    scale = e.cast(rstd, g.dtype)
    normal = e.mul(e.sub(wide, e.cast(mean, g.dtype)), scale)
    gx = gw = gb = None
    if mask[0]:
        weighted = g if weight is None else e.mul(g, e.cast(weight, g.dtype))
        along = e.mul(normal, e.mean(e.mul(weighted, normal), inner, True))
        gx = e.mul(e.sub(e.sub(weighted, e.mean(weighted, inner, True)), along), scale)
        gx = e.cast(gx, e.out[0].dtype)
    if mask[1] and weight is not None:
        gw = e.cast(e.reduce("reduce_sum", e.mul(g, normal), outer), weight.dtype)
    if mask[2] and bias is not None:
        gb = e.cast(e.reduce("reduce_sum", g, outer), bias.dtype)
    return gx, gw, gb


@translates("native_group_norm")
def group_norm(
    e: Emitter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: Dim,
    channels: Dim,
    inner: Dim,
    groups: Dim,
    eps: Number,
) -> tuple[Value, ...]:
    wide = e.wide(x)
    grouped = e.reshape(wide, (n, groups, channels // groups, inner))
    normal, mean, rstd = _standardised(e, grouped, (2, 3), eps, _may_overflow(x))
    normal = e.reshape(normal, x.shape)
    rank = len(x.shape)
    weight = None if weight is None else e.align(weight, rank, 1)
    bias = None if bias is None else e.align(bias, rank, 1)
    return _as_traced(e, _scale_and_shift(e, normal, weight, bias), mean, rstd)


@translates("_fused_rms_norm")
def rms_norm(
    e: Emitter, x: Value, shape: Sequence[Dim], weight: Value | None, eps: Number | None
) -> tuple[Value, ...]:
    rank = len(x.shape)
    wide = e.wide(x)
    mean = e.mean(e.mul(wide, wide), range(rank - len(shape), rank), True)
    rstd = e.emit("rsqrt", e.add(mean, _EPS[x.dtype.name] if eps is None else eps))
    return _as_traced(e, _scale_and_shift(e, e.mul(wide, rstd), weight, None), rstd)


# torch.finfo(dtype).eps of the type that the norm is computed in.
_EPS = {"f64": 2.0**-52, "f32": 2.0**-23, "bf16": 2.0**-23, "f16": 2.0**-23}


# ---- batch norm -------------------------------------------------------------------------------


def _per_channel(e: Emitter, x: Value | None, rank: int) -> Value | None:
    return None if x is None else e.align(e.wide(x), rank, 1)


@translates("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    e: Emitter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: Number,
) -> tuple[Value, ...]:
    # As eager: one factor and one offset a channel, so an element costs a multiply and an add.
    rank = len(x.shape)
    scale = e.emit("rsqrt", e.add(e.wide(running_var), eps))
    scale = scale if weight is None else e.mul(scale, e.wide(weight))
    offset = e.emit("neg", e.mul(e.wide(running_mean), scale))
    offset = offset if bias is None else e.add(offset, e.wide(bias))
    scaled = e.mul(e.wide(x), e.align(scale, rank, 1))
    result = e.cast(e.add(scaled, e.align(offset, rank, 1)), e.dtype)
    empties = (e.constant(0, kind.dtype, kind.shape) for kind in e.out[1:])
    return result, *empties


def _batch_norm_training(
    e: Emitter, x: Value, weight: Value | None, bias: Value | None, eps: Number
) -> tuple[Value, Value, Value, Value]:
    """Return (result, mean, 1 / deviation, unbiased variance), the last three (channels,)."""
    rank = len(x.shape)
    dims = [d for d in range(rank) if d != 1]
    wide = e.wide(x)
    # Eager adds up in f64.
    variance, mean = moments(e, wide, dims, bounded=True)
    rstd = e.emit("rsqrt", e.add(variance, eps))
    # In halves, since the distance between two large numbers may be no number of the type.
    half = e.sub(e.mul(wide, 0.5), e.mul(mean, 0.5))
    normal = e.mul(half, e.mul(rstd, 2.0))
    weight, bias = _per_channel(e, weight, rank), _per_channel(e, bias, rank)
    count = product(x.shape[d] for d in dims)
    unbiased = e.mul(variance, e.constant(count, wide.dtype))
    degrees = e.sub(e.constant(count, wide.dtype), 1)
    channels = (x.shape[1],)
    return (
        e.cast(_scale_and_shift(e, normal, weight, bias), x.dtype),
        e.reshape(mean, channels),
        e.reshape(rstd, channels),
        e.reshape(e.div(unbiased, degrees), channels),
    )


@translates("_native_batch_norm_legit_functional")
def batch_norm_functional(
    e: Emitter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: Number,
) -> tuple[Value, ...]:
    """Return (result, saved mean, saved 1 / deviation, new running mean, new running variance)."""
    if not training:
        inference = batch_norm_inference(
            e, x, weight, bias, running_mean, running_var, momentum, eps
        )
        kept_mean = e.cast(running_mean, e.out[3].dtype)
        return *inference[:3], kept_mean, e.cast(running_var, e.out[4].dtype)
    result, mean, rstd, unbiased = _batch_norm_training(e, x, weight, bias, eps)
    return (
        result,
        e.cast(mean, e.out[1].dtype),
        e.cast(rstd, e.out[2].dtype),
        _blend(e, running_mean, mean, momentum, e.out[3].dtype),
        _blend(e, running_var, unbiased, momentum, e.out[4].dtype),
    )


def _blend(e: Emitter, running: Value, batch: Value, momentum: float, dtype: DType) -> Value:
    kept = e.mul(e.wide(running), 1 - momentum)
    return e.cast(e.add(kept, e.mul(batch, momentum)), dtype)


@translates("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    e: Emitter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: Number,
) -> tuple[Value, ...]:
    result, mean, rstd, _ = _batch_norm_training(e, x, weight, bias, eps)
    return result, e.cast(mean, e.out[1].dtype), e.cast(rstd, e.out[2].dtype)

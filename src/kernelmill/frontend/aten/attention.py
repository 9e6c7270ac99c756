"""Scaled dot product attention: one operator for inference, decomposed where training needs the
normaliser as well."""

from __future__ import annotations

import math

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import BOOL
from kernelmill.frontend.emitter import Emitter, NotTranslated, Number, translates
from kernelmill.graph.ir import Value


def _scale(query: Value, scale: Number | None) -> float:
    width = query.shape[-1]
    if scale is None and isinstance(width, int):
        return 1 / math.sqrt(width) if width else 1.0
    return known_scale(scale)


def known_scale(scale: Number | None) -> float:
    """Return the factor of scores. NotTranslated if it is known only during a call."""
    if not isinstance(scale, (int, float)):
        raise NotTranslated("attention with a scale known only while running")
    return float(scale)


@translates("_scaled_dot_product_flash_attention_for_cpu")
def attention(
    e: Emitter,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value | None, ...]:
    if dropout != 0.0:
        raise NotTranslated("attention with dropout")
    factor = _scale(query, scale)
    mask = () if attn_mask is None else (_rank4(e, attn_mask),)
    if not e.used[1]:
        _require_known(query, key, value)
        # A mask of f32 is added to half types as it is: rounded, -3e38 would be -inf.
        known = BOOL, query.dtype, query.dtype.compute
        mask = tuple(m if m.dtype in known else e.cast(m, known[-1]) for m in mask)
        whole = e.emit("attention", query, key, value, *mask, scale=factor, causal=causal)
        return whole, None
    key, value = (_repeat_heads(e, x, query.shape[1]) for x in (key, value))
    scores = _scores(e, query, key, mask, factor, causal)
    # A row with everything masked gives zeros, and zero as its normaliser.
    top = e.reduce("reduce_max", scores, (3,), True)
    masked = e.compare("eq", top, -math.inf)
    power = e.emit("exp", e.sub(scores, e.where(masked, 0, top)))
    total = e.where(masked, 1, e.reduce("reduce_sum", power, (3,), True))
    result = e.emit("matmul", e.div(power, total), e.cast(value, scores.dtype))
    normaliser = e.where(masked, 0, e.add(e.emit("log", total), top))
    normaliser = e.reshape(normaliser, e.out[1].shape)
    return e.cast(result, e.dtype), e.cast(normaliser, e.out[1].dtype)


def _require_known(query: Value, key: Value, value: Value) -> None:
    heads, shared = query.shape[1], key.shape[1]
    group = heads // shared if shared != 0 else 1
    if not all(isinstance(size, int) for size in (group, query.shape[-1], value.shape[-1])):
        raise NotTranslated("attention of a symbolic depth or group of heads")


def _rank4(e: Emitter, mask: Value) -> Value:
    missing = 4 - len(mask.shape)
    return e.reshape(mask, (*([1] * missing), *mask.shape))


def _repeat_heads(e: Emitter, x: Value, heads: Dim) -> Value:
    """Repeat each of x's heads for the neighbouring query heads of its group."""
    batch, groups, length, width = x.shape
    if groups == heads:
        return x
    if not isinstance(heads, int) or not isinstance(groups, int):
        raise NotTranslated("grouped attention over a symbolic number of heads")
    wide = e.expand(e.unsqueeze(x, 2), (batch, groups, heads // groups, length, width))
    return e.reshape(wide, (batch, heads, length, width))


def _scores(
    e: Emitter, query: Value, key: Value, mask: tuple[Value, ...], scale: float, causal: bool
) -> Value:
    """Return the masked, scaled products in f32 (f64 for f64): (batch, heads, rows, columns)."""
    query, key = e.wide(query), e.wide(key)
    scores = e.mul(e.emit("matmul", query, e.permute(key, (0, 1, 3, 2))), scale)
    if mask:
        if mask[0].dtype == BOOL:
            scores = e.where(mask[0], scores, -math.inf)
        else:
            scores = e.add(scores, e.cast(mask[0], scores.dtype))
    if causal:
        plane = scores.shape[2:]
        keep = e.compare("le", e.iota(plane, 1), e.iota(plane, 0))
        scores = e.where(keep, scores, -math.inf)
    return scores


@translates("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    e: Emitter,
    grad: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    normaliser: Value,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, Value, Value]:
    """Recompute probabilities from the normaliser: Dao 2023 (FlashAttention-2), section 3.1.1."""
    if dropout != 0.0 or key.shape[1] != query.shape[1]:
        raise NotTranslated("attention backward with dropout or grouped queries")
    factor = _scale(query, scale)
    mask = () if attn_mask is None else (_rank4(e, attn_mask),)
    scores = _scores(e, query, key, mask, factor, causal)
    log_total = e.cast(e.reshape(normaliser, (*scores.shape[:3], 1)), scores.dtype)
    weights = e.emit("exp", e.sub(scores, log_total))
    g = e.cast(grad, scores.dtype)
    grad_value = e.emit("matmul", e.permute(weights, (0, 1, 3, 2)), g)
    grad_weights = e.emit("matmul", g, e.permute(e.wide(value), (0, 1, 3, 2)))
    row_total = e.reduce("reduce_sum", e.mul(g, e.cast(out, g.dtype)), (3,), True)
    grad_scores = e.mul(e.mul(weights, e.sub(grad_weights, row_total)), factor)
    grad_query = e.emit("matmul", grad_scores, e.wide(key))
    grad_key = e.emit("matmul", e.permute(grad_scores, (0, 1, 3, 2)), e.wide(query))
    return (
        e.cast(grad_query, query.dtype),
        e.cast(grad_key, key.dtype),
        e.cast(grad_value, value.dtype),
    )

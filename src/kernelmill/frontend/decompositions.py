"""Operators that AOTAutograd decomposes before import.

Most are decomposed by torch. Exceptions are operators with a translation, which keep information
that their parts lack, and operators that draw random numbers: their decompositions draw other
numbers than eager.

Linear resizing with eager's formula: x * (1 - w) + y * w between neighbours.

Torch's own decomposition has x + (y - x) * w, which is NaN between two infinities of one sign, and
an infinity between two numbers whose difference overflows. AOTAutograd always decomposes resizing
that way; an exported program has it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

import kernelmill.frontend.aten as _translators
from kernelmill.frontend.emitter import translator_of
from kernelmill.torch_internals.operators import (
    lying_as_operand,
    memory_format_of,
    torch_table,
)

_aten = torch.ops.aten
_RESIZING = (_aten.upsample_linear1d, _aten.upsample_bilinear2d, _aten.upsample_trilinear3d)

Decompose = Callable[..., Any]


def resizing(torchs: dict[Any, Decompose]) -> dict[Any, Decompose]:
    """Return decompositions of the resizing overloads that `torchs` has. Integers are left to
    torch's, and so is everything if torch does not expose eager's memory format."""
    if memory_format_of() is None:
        return {}
    made: dict[Any, Decompose] = {}
    for operator in _RESIZING:
        for overload, ours in ((operator.vec, _to_size_or_by_factor), (operator.default, _to_size)):
            if overload in torchs:
                made[overload] = partial(_of_floats, ours, torchs[overload])
    return made


def _of_floats(ours: Decompose, torchs: Decompose, x: Tensor, *args: Any) -> Tensor:
    return (ours if x.is_floating_point() else torchs)(x, *args)


def _to_size_or_by_factor(
    x: Tensor, sizes: Sequence[Any] | None, align: bool, factors: Sequence[float] | None
) -> Tensor:
    if sizes is None:
        sizes = [
            size * int(factor) if factor == int(factor) else torch.sym_int(size * factor)
            for size, factor in zip(x.shape[2:], factors or (), strict=True)
        ]
    return _to_size(x, sizes, align, *(factors or ()))


def _to_size(x: Tensor, sizes: Sequence[Any], align: bool, *factors: float | None) -> Tensor:
    """Resize x of shape [images, channels, *spatial] to these spatial sizes. Given factors, not
    sizes, determine the source positions."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    given = factors or [None] * len(sizes)
    axes = [
        _places(have, size, align, factor, wide)
        for have, size, factor in zip(x.shape[2:], sizes, given, strict=True)
    ]
    spread = [[1] * (len(axes) - 1 - number) for number in range(len(axes))]
    corners = [
        _aten.index.Tensor(
            wide,
            [None, None, *(axis[end].reshape(-1, *ones)
                           for axis, end, ones in zip(axes, ends, spread, strict=True))],
        )
        for ends in product((0, 1), repeat=len(axes))
    ]  # fmt: skip
    for (*_, weight), ones in reversed(list(zip(axes, spread, strict=True))):
        w = weight.reshape(-1, *ones)
        corners = [a * (1 - w) + b * w for a, b in zip(corners[::2], corners[1::2], strict=True)]
    memory_format = memory_format_of()
    assert memory_format is not None
    return corners[0].to(x.dtype).contiguous(memory_format=memory_format(x))


def _places(
    have: Any, size: Any, align: bool, factor: float | None, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return, along one axis, indices of the neighbours before and behind each element of the
    result, and the weight of the second."""
    along = torch.arange(size, device=x.device).to(x.dtype)
    if align:
        place = along * ((have - 1.0) / (size - 1.0) if size > 1 else 0.0)
    else:
        place = (along + 0.5) * (1.0 / factor if factor else have / size) - 0.5
    place = place.clamp(min=0.0)
    before = place.to(torch.int64)
    if isinstance(have, int) and isinstance(size, int) and have == size:
        return before, before, torch.zeros_like(place)  # eager does not look at neighbours then
    behind = (before + 1).clamp(max=have - 1)
    return before, behind, (place - before).clamp(0.0, 1.0)


_TRANSLATORS = _translators  # imported for its registrations

_BEYOND_CORE = (
    _aten.frexp,
    _aten.ldexp,
    _aten.rrelu_with_noise_backward,
    _aten.tril_indices,
    _aten.triu_indices,
    _aten.upsample_bicubic2d.default,
    _aten.upsample_bilinear2d,
    _aten.upsample_nearest2d,
    _aten.upsample_trilinear3d,
    _aten.dist,
)
"""Operators that torch counts as core but can decompose, and that we would leave to ATen."""


_LEFT_TO_ATEN = (
    _aten.addr,
    _aten.linspace,
    _aten.logspace,
)
"""Operators whose decomposition rounds half types, or integers, unlike eager."""


_ROW_MAJOR = {_aten.max_unpool2d.default, _aten.channel_shuffle.default}
"""Operators whose decomposition has row-major results, where eager keeps the operand's layout."""


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Decompose take; torch's own needs the value of an index without dims, unknown in tracing."""
    return _aten.index.Tensor(x.reshape(-1), [index])


_MEAN = 1
"""The value of reduction="mean" in losses."""


def _smooth_l1_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    """Decompose the gradient; torch's own has sign 0 for a NaN difference, eager has NaN."""
    norm = 1.0 / x.numel() if reduction == _MEAN else 1.0
    wide = torch.promote_types(grad.dtype, torch.float32)
    difference = x.to(wide) - target.to(wide)
    one = torch.ones_like(difference)
    side = torch.where(difference > 0, one, -one)
    slope = torch.where(difference.abs() >= beta, side, difference / beta)
    return (norm * slope * grad.to(wide)).to(grad.dtype)


def _unfold_backward(
    torchs: Callable[..., Tensor],
    grad: Tensor,
    input_size: list[int],
    dim: int,
    size: int,
    step: int,
) -> Tensor:
    """Write elements where windows do not overlap, as eager; torch's own adds them to zeros, which
    turns -0.0 into 0.0."""
    if not input_size or step < size:
        return torchs(grad, input_size, dim, size, step)
    dim %= len(input_size)
    places = torch.arange(input_size[dim]).unfold(0, size, step).flatten()
    source = grad.movedim(-1, dim + 1).flatten(dim, dim + 1)
    index = [*[None] * dim, places]
    return _aten.index_put(grad.new_zeros(input_size), index, source)


def _native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    """Decompose dropout of all elements, for which eager draws no numbers."""
    if p != 1 or train is False:
        return NotImplemented
    return x * 0.0, torch.zeros_like(x, dtype=torch.bool)


def _multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, qkv_weight: Tensor,
    qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None,
    need_weights: bool = True, average: bool = True, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Decompose nn.MultiheadAttention's operator for inference: self-attention without mask."""
    if mask is not None or need_weights or query is not key or query is not value:
        return NotImplemented
    parts = torch.nn.functional.linear(query, qkv_weight, qkv_bias).chunk(3, dim=-1)
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    joined = found.transpose(1, 2).flatten(2)
    return torch.nn.functional.linear(joined, proj_weight, proj_bias), query.new_empty(0)


def _transformer_encoder_layer(
    src: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor,
    ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Decompose the operator that nn.TransformerEncoderLayer calls in inference, without a mask."""
    if mask is not None:
        return NotImplemented
    functions: Any = torch.nn.functional
    active = functions.gelu if use_gelu else functions.relu

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functions.layer_norm(x, (width,), weight, bias, eps)

    def attend(x: Tensor) -> Tensor:
        return _multi_head_attention(
            x, x, x, width, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, None, False
        )[0]

    def feed(x: Tensor) -> Tensor:
        hidden = active(functions.linear(x, ffn_weight_1, ffn_bias_1))
        return functions.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        src = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return src + feed(norm(src, norm_weight_2, norm_bias_2))
    src = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(src + feed(src), norm_weight_2, norm_bias_2)


_INFERENCE = {
    _aten._native_multi_head_attention.default: _multi_head_attention,
    _aten._transformer_encoder_layer_fwd.default: _transformer_encoder_layer,
}
"""Whole layers that torch.nn calls in place of its own code."""


@cache
def decomposition_table(exported: bool = False) -> dict[Any, Callable[..., Any]]:
    """Return the decomposition of each operator overload; a read-only table. With `exported`, for
    graphs of torch.export, it includes operators that all other traces decompose themselves."""
    table = {**torch_table(_BEYOND_CORE, exported), _aten.take.default: _take}
    table[_aten.smooth_l1_loss_backward.default] = _smooth_l1_loss_backward
    unfolded = _aten.unfold_backward.default
    if unfolded in table:
        table[unfolded] = partial(_unfold_backward, table[unfolded])
    for operator in table.keys() & _ROW_MAJOR:
        run = lying_as_operand(table.pop(operator))
        if run is not None:
            table[operator] = run
    table |= resizing(table)
    kept = {_aten.native_dropout.default: _native_dropout, **_INFERENCE}
    return kept | {
        operator: decompose
        for operator, decompose in table.items()
        if translator_of(operator) is None
        and not _draws_random_numbers(operator)
        and getattr(operator, "overloadpacket", None) not in _LEFT_TO_ATEN
    }


def _draws_random_numbers(operator: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())

"""Dequantise, swiglu, quantise: the operator between the two products of a quantised MLP.

The formula and the arguments are those of `torch_npu.npu_dequant_swiglu_quant` (documentation and
test of the Ascend op-plugin, docs/context/torch_npu-npu_dequant_swiglu_quant.md).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernelmill.ops.library import operator, public, require

_X_DTYPES = (torch.int32, torch.bfloat16, torch.float16, torch.float32)


@public
@operator("dequant_swiglu_quant")
def dequant_swiglu_quant(
    x: Tensor,
    *,
    weight_scale: Tensor | None = None,
    activation_scale: Tensor | None = None,
    bias: Tensor | None = None,
    quant_scale: Tensor | None = None,
    quant_offset: Tensor | None = None,
    group_index: Tensor | None = None,
    activate_left: bool = False,
    quant_mode: int = 0,
    swiglu_mode: int = 0,
    clamp_limit: float = 7.0,
    glu_alpha: float = 1.702,
    glu_bias: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return y int8 (tokens, h) and scale float32 (tokens,) for x (tokens, 2h), int32 or a float
    type.

    Computed in float32, in this order:

    dequantise  x + bias (an int32 one), * weight_scale, * activation_scale, + bias (a float one).
                weight_scale and bias (2h,), (1, 2h) or (tokens, 2h); activation_scale (tokens,) or
                (tokens, 1). An int32 x needs a weight_scale.
    swiglu      mode 0: silu of one half times the other; the activated half is the right one, or
                the left one with `activate_left`. Mode 1: a = even columns, clamped from above,
                b = odd columns, clamped on both sides: a * sigmoid(glu_alpha * a) * (b + glu_bias).
    quantise    mode 0: / quant_scale + quant_offset, and scale is 0. Mode 1: * quant_scale, then
                each row by 127 / max(abs(row)), and scale is max(abs(row)) / 127; a row of zeros
                stays zero. Both (1,), (h,), (1, h). Rounded to nearest even and clamped.

    `group_index` (groups,) int64 holds the number of rows of each group, in order; weight_scale and
    quant_scale then have a row for each group. It needs quant_mode 1 and no bias. Rows beyond the
    last group give zeros.

    Leading dims of x are tokens. Raises InputError for what does not fit.
    """
    _check_modes(x, weight_scale, quant_scale, quant_offset, quant_mode, swiglu_mode)
    rows = x.reshape(-1, x.shape[-1])
    inside = None
    if group_index is not None:
        _check_groups(group_index, weight_scale, quant_scale, bias, quant_mode)
        group, inside = _groups(rows.shape[0], group_index)
        weight_scale = None if weight_scale is None else weight_scale[group]
        quant_scale = None if quant_scale is None else quant_scale[group]
    wide = _dequantised(rows, weight_scale, activation_scale, bias)
    if swiglu_mode == 1:
        gate, other = wide[:, ::2].clamp(max=clamp_limit), wide[:, 1::2]
        other = other.clamp(min=-clamp_limit, max=clamp_limit)
        active = gate * torch.sigmoid(glu_alpha * gate) * (other + glu_bias)
    else:
        left, right = torch.chunk(wide, 2, dim=-1)
        gate, other = (left, right) if activate_left else (right, left)
        active = torch.nn.functional.silu(gate) * other
    if inside is not None:
        active = torch.where(inside.unsqueeze(1), active, 0.0)
    quantise = _by_row if quant_mode == 1 else _by_column
    y, scale = quantise(active, quant_scale, quant_offset)
    return y.reshape(*x.shape[:-1], y.shape[-1]), scale.reshape(x.shape[:-1])


def _groups(rows: int, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the group of each row, and whether it has one (the last group otherwise)."""
    ends = torch.cumsum(counts, 0)
    numbers = torch.arange(rows, device=counts.device)
    group = (numbers.unsqueeze(1) >= ends).sum(1)
    last = counts.shape[0] - 1
    return group.clamp(max=last), group <= last


def _dequantised(
    rows: Tensor, weight_scale: Tensor | None, activation_scale: Tensor | None, bias: Tensor | None
) -> Tensor:
    wide = rows.to(torch.float32)
    if bias is not None and bias.dtype == torch.int32:
        wide, bias = wide + bias, None
    if weight_scale is not None:
        wide = wide * weight_scale.to(torch.float32)
    if activation_scale is not None:
        wide = wide * activation_scale.to(torch.float32).reshape(-1, 1)
    return wide if bias is None else wide + bias.to(torch.float32)


def _by_column(
    active: Tensor, scale: Tensor | None, offset: Tensor | None
) -> tuple[Tensor, Tensor]:
    if scale is not None:
        active = active / scale.to(torch.float32)
    if offset is not None:
        active = active + offset.to(torch.float32)
    return _int8(active), active.new_zeros(active.shape[0])


def _by_row(active: Tensor, scale: Tensor | None, _: Tensor | None) -> tuple[Tensor, Tensor]:
    if scale is not None:
        active = active * scale.to(torch.float32)
    largest = torch.amax(torch.abs(active), dim=-1)
    factor = torch.where(largest == 0, 0.0, 127 / largest)
    return _int8(active * factor.unsqueeze(1)), largest / 127


def _int8(x: Tensor) -> Tensor:
    return torch.round(torch.clamp(x, -128, 127)).to(torch.int8)


def _check_modes(
    x: Tensor,
    weight_scale: Tensor | None,
    quant_scale: Tensor | None,
    quant_offset: Tensor | None,
    quant_mode: int,
    swiglu_mode: int,
) -> None:
    name = "dequant_swiglu_quant"
    require(x.dtype in _X_DTYPES, f"{name}: x is {x.dtype}, not int32 or a float type")
    even = x.dim() >= 2 and x.shape[-1] % 2 == 0
    require(even, f"{name}: x must have 2 dims or more, the last one even: {tuple(x.shape)}")
    scaled = x.dtype != torch.int32 or weight_scale is not None
    require(scaled, f"{name}: an int32 x needs a weight_scale")
    require(quant_mode in (0, 1), f"{name}: quant_mode {quant_mode} is neither 0 nor 1")
    require(swiglu_mode in (0, 1), f"{name}: swiglu_mode {swiglu_mode} is neither 0 nor 1")
    fits = quant_offset is None or (quant_mode == 0 and quant_scale is not None)
    require(fits, f"{name}: quant_offset belongs to quant_mode 0 with a quant_scale")


def _check_groups(
    group_index: Tensor,
    weight_scale: Tensor | None,
    quant_scale: Tensor | None,
    bias: Tensor | None,
    quant_mode: int,
) -> None:
    name = "dequant_swiglu_quant"
    fits = group_index.dim() == 1 and group_index.dtype == torch.int64
    found = f"{group_index.dtype} {tuple(group_index.shape)}"
    require(fits, f"{name}: group_index must be int64 (groups,), not {found}")
    require(quant_mode == 1 and bias is None, f"{name}: group_index needs quant_mode 1 and no bias")
    groups = group_index.shape[0]
    for label, scale in (("weight_scale", weight_scale), ("quant_scale", quant_scale)):
        fits = scale is None or (scale.dim() == 2 and scale.shape[0] == groups)
        require(fits, f"{name}: {label} must have a row for each of {groups} groups")

"""Norms, rotary embedding, gates and quantisation of activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernelmill.ops.library import operator, require

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_ROUNDED = {torch.int8: (-128, 127), torch.qint8: (-128, 127), torch.quint8: (0, 255)}
_STORED = {torch.qint8: torch.int8, torch.quint8: torch.uint8}


def require_floats(name: str, **tensors: Tensor | None) -> None:
    """Raise InputError for a tensor that is of none of the float types."""
    for label, tensor in tensors.items():
        fits = tensor is None or tensor.dtype in FLOATS
        require(fits, f"{name}: {label} must be float16, bfloat16 or float32, not {_dtype(tensor)}")


def _dtype(tensor: Tensor | None) -> str:
    return "" if tensor is None else str(tensor.dtype).removeprefix("torch.")


def rounded(x: Tensor, dtype: torch.dtype = torch.int8) -> Tensor:
    """Round to nearest even and clamp to one of the quantised types."""
    return torch.clamp(torch.round(x), *_ROUNDED[dtype]).to(_STORED.get(dtype, dtype))


@operator("npu_rms_norm")
def rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return (x / rms(x) * gamma, 1 / rms(x) in float32), over the last dims, those of gamma."""
    return _norm("npu_rms_norm", self, gamma, epsilon)


def _norm(
    name: str, x: Tensor, gamma: Tensor, epsilon: float, beta: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    require_floats(name, x=x, gamma=gamma, beta=beta)
    last = x.shape[x.dim() - gamma.dim() :]
    fits = 0 < gamma.dim() <= x.dim() and tuple(last) == tuple(gamma.shape)
    found = f"{tuple(gamma.shape)} for {tuple(x.shape)}"
    require(fits, f"{name}: gamma must have the last dims of x, not {found}")
    wide, dims = x.to(torch.float32), list(range(-gamma.dim(), 0))
    inverse = torch.rsqrt(wide.square().mean(dims, keepdim=True) + epsilon)
    result = wide * inverse * gamma.to(torch.float32)
    if beta is not None:
        result = result + beta.to(torch.float32)
    return result.to(x.dtype), inverse


@operator("npu_add_rms_norm")
def add_rms_norm(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (norm, 1 / rms, sum) of x = x1 + x2, rounded to its type before the norm."""
    x = _sum("npu_add_rms_norm", x1, x2)
    return *_norm("npu_add_rms_norm", x, gamma, epsilon), x


def _sum(name: str, x1: Tensor, x2: Tensor) -> Tensor:
    fits = x1.dtype == x2.dtype and x1.shape == x2.shape
    found = f"{_dtype(x1)} {tuple(x1.shape)} and {_dtype(x2)} {tuple(x2.shape)}"
    require(fits, f"{name}: x1 and x2 must have one type and shape, not {found}")
    return x1 + x2


@operator("npu_add_rms_norm_cast")
def add_rms_norm_cast(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (norm in float32, norm, 1 / rms, sum)."""
    y, inverse, x = add_rms_norm(x1, x2, gamma, epsilon)
    return y.to(torch.float32), y, inverse, x


@operator("npu_add_rms_norm_quant")
def add_rms_norm_quant(
    x1: Tensor, x2: Tensor, gamma: Tensor, scales1: Tensor, zero_points1: Tensor | None,
    beta: Tensor | None = None, scales2: Tensor | None = None, zero_points2: Tensor | None = None,
    *, axis: int = -1, epsilon: float = 1e-6, div_mode: bool = True
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return (norm in int8 by scales1, by scales2, sum); without scales2 the second is zeros."""
    x = _sum("npu_add_rms_norm_quant", x1, x2)
    y, _ = _norm("npu_add_rms_norm_quant", x, gamma, epsilon, beta)
    first = _scaled(y, scales1, zero_points1, torch.qint8, div_mode)
    if scales2 is None:
        return first, torch.zeros_like(first), x
    return first, _scaled(y, scales2, zero_points2, torch.qint8, div_mode), x


@operator("npu_add_rms_norm_dynamic_quant")
def add_rms_norm_dynamic_quant(
    x1: Tensor, x2: Tensor, gamma: Tensor, *, smooth_scale1: Tensor | None = None,
    smooth_scale2: Tensor | None = None, beta: Tensor | None = None, epsilon: float = 1e-6,
    output_mask: list[bool] | None = None, y_dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return (y1, y2, sum, scale1, scale2): the norm quantised by row, twice; outputs left out by
    the mask, or for a missing smooth_scale2, are empty."""
    name = "npu_add_rms_norm_dynamic_quant"
    x = _sum(name, x1, x2)
    y, _ = _norm(name, x, gamma, epsilon, beta)
    smooth = smooth_scale1, smooth_scale2
    wanted = output_mask or [True, smooth_scale1 is not None and smooth_scale2 is not None]
    fits = len(wanted) == 2 and any(wanted)
    fits = fits and all(w or s is None for w, s in zip(wanted, smooth, strict=True))
    require(fits, f"{name}: output_mask {wanted} leaves out what has a smooth scale, or all")
    empty = y.new_empty(0, dtype=torch.int8), y.new_empty(0, dtype=torch.float32)
    (y1, scale1), (y2, scale2) = (
        dynamic_quant(y, smooth_scales=s, dst_type=y_dtype) if w else empty
        for w, s in zip(wanted, smooth, strict=True)
    )
    return y1, y2, x, scale1, scale2


@operator("npu_rotary_mul")
def rotary_mul(
    self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Tensor | None = None
) -> Tensor:
    """Return x * r1 + turned(x) * r2; turned swaps halves, or neighbours ("interleave"), the second
    of a pair negated; or is x @ rotate."""
    require_floats("npu_rotary_mul", input=self, r1=r1, r2=r2, rotate=rotate)
    modes = ("half", "interleave")
    require(rotary_mode in modes, f"npu_rotary_mul: rotary_mode {rotary_mode!r} is none of {modes}")
    fits = self.dim() in (3, 4) and self.shape[-1] % 2 == 0
    found = tuple(self.shape)
    require(fits, f"npu_rotary_mul: input must have 3 or 4 dims, the last even, not {found}")
    x = self.to(torch.float32)
    if rotate is not None:
        turned = torch.matmul(self, rotate.to(self.dtype)).to(torch.float32)
    elif rotary_mode == "half":
        left, right = x.chunk(2, -1)
        turned = torch.cat((-right, left), -1)
    else:
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    result = x * r1.to(torch.float32) + turned * r2.to(torch.float32)
    require(result.shape == self.shape, "npu_rotary_mul: r1 and r2 must broadcast to the input")
    return result.to(self.dtype)


@operator("npu_swiglu")
def swiglu(self: Tensor, dim: int = -1) -> Tensor:
    """Return silu of the first half of dim, times the second."""
    require_floats("npu_swiglu", input=self)
    fits = -self.dim() <= dim < self.dim() and self.shape[dim] % 2 == 0
    require(fits, f"npu_swiglu: dim {dim} of {tuple(self.shape)} is not there, or is odd")
    left, right = self.to(torch.float32).chunk(2, dim)
    return (torch.nn.functional.silu(left) * right).to(self.dtype)


@operator("npu_dynamic_quant")
def dynamic_quant(
    input: Tensor, *, smooth_scales: Tensor | None = None, group_index: Tensor | None = None,
    dst_type: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (int8 of x / scale, scale = max(abs(row)) / 127 in float32); zero rows stay zeros. Of
    quint4x2 int4 by max(abs(row)) / 7, packed into int32.

    x is multiplied by smooth_scales (h,) before; or by row i of smooth_scales (groups, h) for the
    tokens up to group_index[i].
    """
    name = "npu_dynamic_quant"
    require_floats(name, x=input, smooth_scales=smooth_scales)
    require(input.dim() > 1, f"{name}: x must have 2 dims or more, not {input.dim()}")
    packed = dst_type == torch.quint4x2
    fits = dst_type in (None, torch.int8) or packed
    require(fits, f"{name}: dst_type {dst_type} is none of int8, quint4x2")
    x, h = input.to(torch.float32), input.shape[-1]
    if smooth_scales is not None:
        groups = 0 if group_index is None else group_index.shape[0]
        shape = (h,) if group_index is None else (groups, h)
        fits, found = tuple(smooth_scales.shape) == shape, tuple(smooth_scales.shape)
        require(fits, f"{name}: smooth_scales must be {shape}, not {found}")
        smooth = smooth_scales.to(torch.float32)
        if group_index is not None:
            rows = torch.arange(x[..., 0].numel(), device=x.device)
            group = (rows.unsqueeze(1) >= group_index).sum(1).clamp(max=groups - 1)
            smooth = smooth[group].reshape(x.shape)
        x = x * smooth
    largest, most = x.abs().amax(-1, keepdim=True), 7 if packed else 127
    result = x * torch.where(largest == 0, 0.0, most / largest)
    result = _in_eighths(name, result) if packed else rounded(result)
    return result, (largest / most).squeeze(-1)


def _in_eighths(name: str, x: Tensor) -> Tensor:
    """Round to int4, eight along the last dim in one int32, the first in its lowest bits."""
    fits = x.shape[-1] % 8 == 0
    require(fits, f"{name}: for quint4x2 the last dim must be a multiple of 8, not {x.shape[-1]}")
    parts = torch.clamp(torch.round(x), -8, 7).to(torch.int32).unflatten(-1, (-1, 8)) & 15
    return (parts << torch.arange(0, 32, 4, device=x.device)).sum(-1).to(torch.int32)


@operator("npu_quantize")
def quantize(
    self: Tensor, scales: Tensor, zero_points: Tensor | None, dtype: torch.dtype, axis: int = 1,
    div_mode: bool = True
) -> Tensor:  # fmt: skip
    """Return x / scales + zero_points (x * scales without div_mode), rounded and clamped: int8 of
    qint8, uint8 of quint8, int32. Scales of one dim lie along axis; without div_mode the axis is -2
    or the last, and quint4x2 is int4, packed into int32."""
    name = "npu_quantize"
    short = (torch.qint8, torch.int8, torch.quint4x2)
    known = (*_STORED, torch.int8, torch.int32) if div_mode else short
    require(dtype in known, f"{name}: dtype {dtype} is none of {', '.join(map(str, known))}")
    require_floats(name, input=self, scales=scales)
    if not div_mode:
        axis = axis if axis == -2 else -1
    require(-self.dim() <= axis < self.dim(), f"{name}: the input has no axis {axis}")
    along = [1] * self.dim()
    along[axis] = -1
    spread: list[Any] = []
    for label, given in (("scales", scales), ("zero_points", zero_points)):
        if given is not None and given.dim() == 1:
            fits = given.shape[0] in (1, self.shape[axis])
            found = f"{given.shape[0]}, not {self.shape[axis]}"
            require(fits, f"{name}: {label} has {found} elements")
            given = given.reshape(along)
        spread.append(given)
    return _scaled(self, spread[0], spread[1], dtype, div_mode)


def _scaled(
    x: Tensor, scales: Tensor, zero_points: Tensor | None, dtype: torch.dtype, div_mode: bool
) -> Tensor:
    wide, factor = x.to(torch.float32), scales.to(torch.float32)
    result = wide / factor if div_mode else wide * factor
    if zero_points is not None:
        result = result + zero_points.to(torch.float32)
    if dtype == torch.quint4x2:
        return _in_eighths("npu_quantize", result)
    if dtype == torch.int32:
        return torch.round(result).to(torch.int32)
    return rounded(result, dtype)


@operator("npu_scatter_nd_update_(Tensor(a!) self, Tensor indices, Tensor updates) -> Tensor(a!)")
def scatter_nd_update_(self: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Write slices of updates to the places of self that the last dim of indices names."""
    name, depth = "npu_scatter_nd_update", indices.shape[-1]
    fits = indices.dtype in (torch.int32, torch.int64) and indices.dim() >= 2
    fits = fits and depth <= self.dim()
    found = f"{_dtype(indices)} {tuple(indices.shape)}"
    require(fits, f"{name}: indices must be int32 or int64 (..., up to {self.dim()}), not {found}")
    shape = (*indices.shape[:-1], *self.shape[depth:])
    fits = updates.dtype == self.dtype and tuple(updates.shape) == tuple(shape)
    found = f"{_dtype(updates)} {tuple(updates.shape)}"
    require(fits, f"{name}: updates must be {_dtype(self)} {tuple(shape)}, not {found}")
    return self.index_put_(indices.to(torch.int64).unbind(-1), updates)


@operator("npu_scatter_nd_update")
def scatter_nd_update(self: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Do the same as `scatter_nd_update_` on a copy."""
    return scatter_nd_update_(self.clone(), indices, updates)

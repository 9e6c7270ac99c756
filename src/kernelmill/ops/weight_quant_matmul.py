"""Matrix product with a weight of int8 or packed int4, dequantised as it is read.

The formula and the names are those of `torch_npu.npu_weight_quant_batchmatmul` (documentation of
the Ascend op-plugin, docs/context/torch_npu-npu_weight_quant_batchmatmul.md), but two int4 are
stored in a byte of uint8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernelmill.ops.library import operator, public, require

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@public
@operator("weight_quant_matmul")
def weight_quant_matmul(
    x: Tensor,
    weight: Tensor,
    antiquant_scale: Tensor,
    *,
    antiquant_offset: Tensor | None = None,
    bias: Tensor | None = None,
    antiquant_group_size: int = 0,
) -> Tensor:
    """Compute `x @ ((weight + antiquant_offset) * antiquant_scale) + bias`, in the dtype of x.

    x (..., k), float16, bfloat16 or float32. weight (k, n) int8; or (k / 2, n) uint8, two numbers
    0 to 15 in each byte: the low four bits are those of the even k, the high ones of the odd k
    (an int4 of -8 to 7 is stored 8 higher, with an offset of -8). Scale and offset are float: (1,),
    (n,), (1, n), or with a group size (k / group, n), one row for so many neighbouring k. The
    weight is made in float32 and rounded to the dtype of x; bias is (n,), of that dtype too.

    Compiled, a weight that is a parameter or a buffer stays in its bytes, and is not rounded where
    x has few rows. Raises InputError for other types and shapes.
    """
    _check_product(x, weight)
    k, n = x.shape[-1], weight.shape[1]
    group = antiquant_group_size
    require(group >= 0, f"weight_quant_matmul: antiquant_group_size is {group}")
    require(
        group == 0 or k % group == 0,
        f"weight_quant_matmul: k = {k} is not cut into groups of {group}",
    )
    wide = _numbers(weight).to(torch.float32)
    if antiquant_offset is not None:
        wide = wide + _spread("antiquant_offset", antiquant_offset, k, n, group)
    wide = (wide * _spread("antiquant_scale", antiquant_scale, k, n, group)).to(x.dtype)
    if bias is not None:
        fits = bias.dtype == x.dtype and tuple(bias.shape) == (n,)
        found = f"{bias.dtype} {tuple(bias.shape)}"
        require(fits, f"weight_quant_matmul: bias must be {x.dtype} ({n},), not {found}")
    return torch.nn.functional.linear(x, wide.t(), bias)


def _numbers(weight: Tensor) -> Tensor:
    """Return the weight as (k, n) integers."""
    if weight.dtype == torch.int8:
        return weight
    halves = torch.stack((weight & 15, weight >> 4), dim=1)
    return halves.reshape(2 * weight.shape[0], weight.shape[1])


def _spread(name: str, values: Tensor, k: int, n: int, group: int) -> Tensor:
    """Return one float32 value for each element of the weight."""
    real, shape = values.dtype in _FLOATS, tuple(values.shape)
    require(real, f"weight_quant_matmul: {name} must be float, not {values.dtype}")
    values = values.to(torch.float32)
    if group == 0:
        fits = shape in ((1,), (n,), (1, n))
        require(fits, f"weight_quant_matmul: {name} must be (1,), ({n},) or (1, {n}), not {shape}")
        return values
    fits = shape == (k // group, n)
    require(fits, f"weight_quant_matmul: {name} must be ({k // group}, {n}), not {shape}")
    return values.unsqueeze(1).expand(k // group, group, n).reshape(k, n)


def _check_product(x: Tensor, weight: Tensor) -> None:
    floats = x.dtype in _FLOATS and x.dim() >= 1
    found = f"{x.dtype} with {x.dim()} dims"
    require(floats, f"weight_quant_matmul: x must be float with 1 dim or more, not {found}")
    small = weight.dtype in (torch.int8, torch.uint8) and weight.dim() == 2
    found = f"{weight.dtype} with {weight.dim()} dims"
    require(small, f"weight_quant_matmul: weight must be int8 or uint8 with 2 dims, not {found}")
    rows = weight.shape[0] * (2 if weight.dtype == torch.uint8 else 1)
    fits = x.shape[-1] == rows
    require(fits, f"weight_quant_matmul: x has k = {x.shape[-1]}, the weight {rows}")

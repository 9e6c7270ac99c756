"""Matrix product of int8 tensors, scaled to a float type or quantised again.

The formula and the arguments are those of `torch_npu.npu_quant_matmul` (documentation of the
Ascend op-plugin, docs/context/torch_npu-npu_quant_matmul.md); int4 packed into int32 and scales
packed into int64 are refused.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelmill.ops.library import operator, public, require

OUTPUT_DTYPES = (torch.int8, torch.float16, torch.bfloat16, torch.float32)
_BIAS_DTYPES = (torch.int32, torch.float16, torch.bfloat16, torch.float32)


@public
@operator("quant_matmul")
def quant_matmul(
    x1: Tensor,
    x2: Tensor,
    scale: Tensor,
    *,
    offset: Tensor | None = None,
    pertoken_scale: Tensor | None = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """Compute `(x1 @ x2 + bias) * scale * pertoken_scale + offset`, as `output_dtype` (None: int8).

    x1 (..., m, k) and x2 (..., k, n), int8, 2 to 6 dims, batch dims broadcast. Sums are exact in
    int32 (they wrap beyond k = 131072). The rest is computed in float32, in this order: an int32
    bias is added to the sums; scale (1,) or (n,), float32 or bfloat16; pertoken_scale (m,) float32;
    a float bias is added here; offset (1,) or (n,) float32, for int8 results only. bias is (n,), or
    (batch, 1, n) for a result of 3 dims. int8 results are rounded to nearest even and clamped.

    Raises InputError for other types and shapes.

    >>> x, weight = torch.ones(1, 4, dtype=torch.int8), torch.ones(4, 2, dtype=torch.int8)
    >>> kernelmill.ops.quant_matmul(x, weight, torch.ones(1))
    tensor([[4, 4]], dtype=torch.int8)
    """
    wanted = output_dtype or torch.int8
    _check_product(x1, x2, wanted)
    _check_scales(x1, x2, scale, offset, pertoken_scale, wanted)
    if bias is not None:
        _check_bias(x1, x2, bias)
    return _scaled(_sums(x1, x2), scale, offset, pertoken_scale, bias, wanted)


def _sums(x1: Tensor, x2: Tensor) -> Tensor:
    """Return x1 @ x2 in int32."""
    if x2.dim() == 2:
        rows = torch.ops.aten._int_mm(x1.flatten(0, -2), x2)
        return rows.reshape(*x1.shape[:-1], x2.shape[-1])
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    (m, k), n = x1.shape[-2:], x2.shape[-1]
    # Widened last: the compiler multiplies bytes where both operands are widened ones.
    a = x1.expand(*batch, m, k).reshape(math.prod(batch), m, k).to(torch.int32)
    b = x2.expand(*batch, k, n).reshape(math.prod(batch), k, n).to(torch.int32)
    return torch.bmm(a, b).reshape(*batch, m, n)


def _scaled(
    sums: Tensor,
    scale: Tensor,
    offset: Tensor | None,
    pertoken_scale: Tensor | None,
    bias: Tensor | None,
    wanted: torch.dtype,
) -> Tensor:
    if bias is not None and bias.dtype == torch.int32:
        sums, bias = sums + bias, None
    result = sums.to(torch.float32) * scale.to(torch.float32)
    if pertoken_scale is not None:
        result = result * pertoken_scale.unsqueeze(-1)
    if bias is not None:
        result = result + bias.to(torch.float32)
    if offset is not None:
        result = result + offset
    if wanted == torch.int8:
        result = torch.clamp(torch.round(result), -128, 127)
    return result.to(wanted)


def _check_product(x1: Tensor, x2: Tensor, wanted: torch.dtype) -> None:
    for name, x in (("x1", x1), ("x2", x2)):
        fits = x.dtype == torch.int8 and 2 <= x.dim() <= 6
        found = f"{x.dtype} with {x.dim()} dims"
        require(fits, f"quant_matmul: {name} must be int8 with 2 to 6 dims, not {found}")
    sizes = f"{tuple(x1.shape)} and {tuple(x2.shape)}"
    require(x1.shape[-1] == x2.shape[-2], f"quant_matmul: x1 @ x2 does not fit: {sizes}")
    allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in OUTPUT_DTYPES)
    require(wanted in OUTPUT_DTYPES, f"quant_matmul: output_dtype {wanted} is none of {allowed}")


def _check_scales(
    x1: Tensor,
    x2: Tensor,
    scale: Tensor,
    offset: Tensor | None,
    pertoken_scale: Tensor | None,
    wanted: torch.dtype,
) -> None:
    m, n = x1.shape[-2], x2.shape[-1]
    real = scale.dtype in (torch.float32, torch.bfloat16)
    require(real, f"quant_matmul: scale must be float32 or bfloat16, not {scale.dtype}")
    _check_channels("scale", scale, n)
    if offset is not None:
        require(wanted == torch.int8, f"quant_matmul: offset is for int8 results, not {wanted}")
        require(offset.dtype == torch.float32, f"quant_matmul: offset is {offset.dtype}")
        _check_channels("offset", offset, n)
    if pertoken_scale is not None:
        fits = pertoken_scale.dtype == torch.float32 and pertoken_scale.dim() == 1
        found = f"{pertoken_scale.dtype} {tuple(pertoken_scale.shape)}"
        fits = fits and pertoken_scale.shape[0] == m
        require(fits, f"quant_matmul: pertoken_scale must be float32 ({m},), not {found}")


def _check_channels(name: str, tensor: Tensor, n: int) -> None:
    fits = tensor.dim() == 1 and (tensor.shape[0] == 1 or tensor.shape[0] == n)
    require(fits, f"quant_matmul: {name} must have 1 or {n} elements, not {tuple(tensor.shape)}")


def _check_bias(x1: Tensor, x2: Tensor, bias: Tensor) -> None:
    n = x2.shape[-1]
    require(bias.dtype in _BIAS_DTYPES, f"quant_matmul: bias is {bias.dtype}")
    fits = bias.dim() == 1
    if bias.dim() == 3 and max(x1.dim(), x2.dim()) == 3:
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])[0]
        fits = bias.shape[0] == batch and bias.shape[1] == 1
    fits = fits and bias.shape[-1] == n
    require(fits, f"quant_matmul: bias must be ({n},) or (batch, 1, {n}), not {tuple(bias.shape)}")

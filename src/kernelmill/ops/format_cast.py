"""Tensors in the memory order that a kernel reads, with their shape unchanged.

The format numbers are those of `torch_npu.npu_format_cast`. On a CPU, the fractal format is the
order in which int8 products read a weight: the k of one column are neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernelmill.ops.library import operator, public, require

ND = 2
FRACTAL_NZ = 29


@public
@operator("format_cast")
def format_cast(self: Tensor, acl_format: int) -> Tensor:
    """Return a copy with the same shape and values, in the format 2 (ND) or 29 (FRACTAL_NZ).

    ND is row-major. FRACTAL_NZ is packed for being the second operand of a product: of the last two
    dims (k, n) the first is the closest in memory, strides (1, k). Any operator takes the result.

    Raises InputError for another format, or for FRACTAL_NZ of fewer than two dims.
    """
    known = acl_format in (ND, FRACTAL_NZ)
    require(known, f"format_cast: format {acl_format} is none of 2 (ND) and 29 (FRACTAL_NZ)")
    if acl_format == ND:
        return self.clone(memory_format=torch.contiguous_format)
    require(self.dim() >= 2, f"format_cast: FRACTAL_NZ needs 2 dims, not {self.dim()}")
    turned = self.transpose(-1, -2).clone(memory_format=torch.contiguous_format)
    return turned.transpose(-1, -2)

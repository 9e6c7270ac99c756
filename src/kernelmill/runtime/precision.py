"""How exactly torch is asked to multiply float32 on the processor.

What decides is oneDNN's setting for matmul: `torch.set_float32_matmul_precision` sets it, and
`torch.backends.mkldnn.matmul.fp32_precision`; where neither says anything it is that of
`torch.backends.mkldnn.fp32_precision` and `torch.backends.fp32_precision`, in this order.
"""

from __future__ import annotations

import torch

EXACT = 6
_PRODUCTS = {"tf32": 3, "bf16": 1}


def allowed_products() -> int:
    """How many products of bf16 may take the place of one of f32: `EXACT` for "highest", 3 for
    "high" (two bf16 for each number), 1 for "medium"."""
    setting: str = torch._C._get_fp32_precision_getter("mkldnn", "matmul")
    return _PRODUCTS.get(setting, EXACT)

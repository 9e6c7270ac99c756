"""The precision that the user has set in torch for float32 products on the processor.

What decides is oneDNN's setting for matmul: `torch.set_float32_matmul_precision` sets it, and
`torch.backends.mkldnn.matmul.fp32_precision`; where neither says anything it is that of
`torch.backends.mkldnn.fp32_precision` and `torch.backends.fp32_precision`, in this order.
"""

from __future__ import annotations

from kernelmill.torch_internals.dispatch import float32_precision

EXACT = 6
_PRODUCTS = {"tf32": 3, "bf16": 1}


def allowed_products() -> int:
    """Return the number of bf16 products that may replace one of f32: `EXACT` for "highest", 3 for
    "high" (two bf16 for each number), 1 for "medium"."""
    return _PRODUCTS.get(float32_precision("matmul"), EXACT)

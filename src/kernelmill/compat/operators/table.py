"""Table of operators by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernelmill.compat.operators import attention, experts, norms
from kernelmill.ops.library import NAMES

MODULES = (attention, experts, norms)
"""Modules that register operators."""

_OURS = {
    "npu_quant_matmul": "quant_matmul",
    "npu_weight_quant_batchmatmul": "weight_quant_matmul",
    "npu_dequant_swiglu_quant": "dequant_swiglu_quant",
    "npu_format_cast": "format_cast",
}
"""Operators of `kernelmill.ops`, by the names that torch_npu has."""

OPERATORS: Mapping[str, Any] = {
    **{name: getattr(torch.ops.kernelmill, own) for name, own in _OURS.items()},
    **{
        name: getattr(torch.ops.kernelmill, name)
        for name in NAMES
        if name.startswith("npu_") and "." not in name
    },
    # Torch takes an operator that writes apart in eager alone: Dynamo has to see its parts.
    "npu_scatter_nd_update_": norms.scatter_nd_update_,
}
"""Operators by their names in `torch_npu`."""

"""What operators of torch_npu refuse, and how they say it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from kernelmill.compat.operators import OPERATORS
from kernelmill.core.errors import InputError

X, Q = torch.randn(4, 16), torch.randn(2, 4, 5, 16)


@pytest.mark.parametrize(
    ("name", "args", "options", "text"),
    [
        ("npu_rms_norm", (X, torch.randn(8)), {}, "gamma must have the last dims of x"),
        ("npu_rms_norm", (X.int(), X[0]), {}, "x must be float16, bfloat16 or float32, not int32"),
        ("npu_add_rms_norm", (X, X.half(), X[0]), {}, "one type and shape"),
        ("npu_rotary_mul", (Q, Q, Q), {"rotary_mode": "quarter"}, "rotary_mode 'quarter'"),
        ("npu_swiglu", (X[:3],), {"dim": 0}, "dim 0 of (3, 16) is not there, or is odd"),
        ("npu_dynamic_quant", (X,), {"dst_type": torch.uint8}, "is none of int8, quint4x2"),
        ("npu_dynamic_quant", (X[:, :12],), {"dst_type": torch.quint4x2}, "multiple of 8, not 12"),
        ("npu_quantize", (X, X[0], None, torch.quint4x2), {}, "dtype torch.quint4x2 is none of"),
        ("npu_quantize", (X, X[0], None, torch.float32), {}, "dtype torch.float32 is none of"),
        ("npu_scatter_nd_update_", (X, X.int(), X), {}, "indices must be int32 or int64"),
        ("npu_fusion_attention", (Q, Q, Q, 4, "BDSN"), {}, "input_layout 'BDSN'"),
        ("npu_fusion_attention", (Q, Q, Q, 4, "BNSD"), {"sparse_mode": 6}, "needs a prefix"),
        ("npu_fusion_attention", (Q, Q, Q, 4, "BNSD"), {"sparse_mode": 7}, "none of 0 to 4"),
        ("npu_fusion_attention", (Q, Q, Q, 4, "BNSD"), {"softmax_layout": "NTD"}, "nor 'TND'"),
        ("npu_fusion_attention", (Q, Q, Q, 3, "BNSD"), {}, "there are 4 heads in BNSD, not 3"),
        (
            "npu_fused_infer_attention_score", (Q, Q, Q),
            {"num_heads": 4, "input_layout": "BNSD", "sparse_mode": 3}, "needs an atten_mask",
        ),
        (
            "npu_fused_infer_attention_score", (Q, Q, Q),
            {"kv_padding_size": Q}, "kv_padding_size is not supported here; leave it out",
        ),
        ("npu_fused_infer_attention_score", (Q, Q, Q), {"key_shared_prefix": Q}, "go together"),
        (
            "npu_fused_infer_attention_score", (Q, Q, Q),
            {"key_shared_prefix": Q, "value_shared_prefix": Q, "num_heads": 4,
             "input_layout": "BNSD"}, "a shared prefix is one sequence",
        ),
        ("npu_incre_flash_attention", (Q, Q, Q), {"input_layout": "BNSD"}, "one query"),
        ("npu_grouped_matmul", ([X, X], [X]), {}, "2 x for 1 weights"),
        ("npu_grouped_matmul", ([X], [X]), {}, "(4, 16) @ (4, 16) does not fit"),
        ("npu_transpose_batchmatmul", (X, X), {}, "must have 3 dims"),
        ("npu_moe_gating_top_k", (X, 17), {}, "k 17 is not in [1, 16]"),
        ("npu_moe_gating_top_k", (X, 2), {"group_count": 5}, "16 experts are not in 5 groups"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    name: str, args: tuple[Any, ...], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        OPERATORS[name](*args, **options)

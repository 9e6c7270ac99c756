"""Cases of attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tests.unit.compat import operator_definitions as by
from tests.unit.compat.operator_cases import (
    BRAIN,
    CASES,
    FLOAT,
    HALF,
    Expected,
    case,
    drawn,
    whole,
)  # fmt: skip

_TO = {
    "BNSD": lambda x: x,
    "BSND": lambda x: x.transpose(1, 2),
    "BSH": lambda x: x.transpose(1, 2).flatten(2),
    "SBH": lambda x: x.permute(2, 0, 1, 3).flatten(2),
    "NBSD": lambda x: x.transpose(0, 1),
}
SCALE = 0.25


def _heads(
    rows: int = 5, columns: int = 7, own: int = 4, dtype: torch.dtype = FLOAT
) -> list[Tensor]:
    shapes = (2, 4, rows, 16), (2, own, columns, 16), (2, own, columns, 16)
    return [drawn(*shape, dtype=dtype) for shape in shapes]


def _trained() -> None:
    for layout in ("BNSD", "BSND", "BSH", "SBH"):

        def fusion(layout: str = layout) -> Any:
            q, k, v = _heads(own=2, dtype=BRAIN if layout == "BSH" else FLOAT)
            pse = drawn(1, 4, 5, 7).to(q.dtype)
            mask = torch.rand(2, 1, 5, 7) > 0.7
            mask[..., 0] = False

            def sees(b: int, i: int, j: int) -> bool:
                return not mask[b, 0, i, j]

            def expected() -> list[Tensor | None]:
                out, _, top, total = by.attention(q, k, v, SCALE, sees, pse.double() * SCALE)
                wide = [x.expand(2, 4, 5, 8) for x in (top, total)]
                precise = [None, None] if q.dtype == BRAIN else wide
                return [_TO[layout](out), *precise, None, None, None, None]

            args = (*(_TO[layout](x).contiguous() for x in (q, k, v)), 4, layout)
            options = {"pse": pse, "atten_mask": mask, "scale": SCALE}
            return "npu_fusion_attention", args, options, expected

        CASES[f"fusion_{layout}"] = fusion


_trained()


@case
def fusion_of_a_row() -> Any:
    parts = [_heads(n, m)[0:3] for n, m in ((3, 4), (2, 2))]
    parts = [[x[:1] for x in part] for part in parts]
    args = [torch.cat([part[i][0].transpose(0, 1) for part in parts]) for i in range(3)]

    def expected() -> list[Tensor | None]:
        outs = [by.attention(q, k, v, SCALE, lambda b, i, j: j <= i)[0][0] for q, k, v in parts]
        out = torch.cat([one.transpose(0, 1) for one in outs])
        return [out, None, None, None, None, None, None]

    options = {
        "scale": SCALE, "sparse_mode": 2, "atten_mask": torch.ones(8, 8).triu(1).bool(),
        "actual_seq_qlen": [3, 5, 0], "actual_seq_kvlen": [4, 6, 0],
    }  # fmt: skip
    return "npu_fusion_attention", (*args, 4, "TND"), options, expected


def _prefixes() -> None:
    for mode in (5, 6):
        for row in (False, True):

            def prefix(mode: int = mode, row: bool = row) -> Any:
                q, k, v = _heads(5, 7)
                counts = [3, 6]

                def sees(b: int, i: int, j: int) -> bool:
                    return j <= i + 2 or j < counts[b]

                full = [[[not sees(b, i, j) for j in range(7)] for i in range(5)] for b in (0, 1)]
                mask = torch.tensor(full)[:, None] if mode == 5 else torch.ones(3072, 2048) > 0
                out = by.attention(q, k, v, SCALE, sees)[0]
                options = {
                    "scale": SCALE, "sparse_mode": mode, "prefix": counts, "atten_mask": mask
                }  # fmt: skip
                if row:
                    q, k, v, out = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v, out))
                    options |= {"actual_seq_qlen": [5, 10], "actual_seq_kvlen": [7, 14]}
                expected = [out, *[None] * 6]
                args = (q, k, v, 4, "TND" if row else "BNSD")
                return "npu_fusion_attention", args, options, lambda: expected

            if mode == 6 or not row:
                CASES[f"fusion_prefix_{mode}_{'TND' if row else 'BNSD'}"] = prefix


_prefixes()


@case
def fusion_with_a_sink() -> Any:
    q, k, v = _heads(own=2)
    sink = drawn(4)
    out, sums, top, _ = by.attention(q, k, v, SCALE, by.everything, sink=sink)
    top = torch.maximum(top, sink.double()[:, None, None])
    wide = [x.expand(2, 4, 5, 8) for x in (top, torch.exp(sums - top))]
    options = {"scale": SCALE, "sink": sink}
    return "npu_fusion_attention", (q, k, v, 4, "BNSD"), options, lambda: [out, *wide, *[None] * 4]


SPARSE: dict[int, by.Sees] = {
    0: lambda b, i, j: i - 2 <= j <= i + 1,
    2: lambda b, i, j: j <= i,
    3: lambda b, i, j: j <= i + 2,
    4: lambda b, i, j: i + 2 - 2 <= j <= i + 2 + 1,
}
"""With 5 queries, 7 keys, 2 tokens before and 1 behind."""


def _prompts() -> None:
    for mode, sees in SPARSE.items():

        def sparse(mode: int = mode, sees: by.Sees = sees) -> Any:
            q, k, v = _heads(own=2)
            mask = torch.zeros(5, 7).bool() if mode == 0 else torch.ones(2048, 2048).triu(1).bool()
            options = {
                "num_heads": 4, "num_key_value_heads": 2, "scale": SCALE, "input_layout": "BNSD",
                "sparse_mode": mode, "pre_tokens": 2, "next_tokens": 1, "atten_mask": mask,
                "softmax_lse_flag": True,
            }  # fmt: skip
            expected: Expected = lambda: by.attention(q, k, v, SCALE, sees)[:2]  # noqa: E731
            return "npu_fused_infer_attention_score", (q, k, v), options, expected

        CASES[f"infer_sparse_mode_{mode}"] = sparse
    for layout in ("BSH", "BSND", "BNSD_BSND", "BSND_NBSD"):

        def infer(layout: str = layout) -> Any:
            q, k, v = _heads(dtype=HALF)
            source, _, target = layout.partition("_")
            args = tuple(_TO[source](x).contiguous() for x in (q, k, v))
            options = {"num_heads": 4, "scale": SCALE, "input_layout": layout}
            out = by.attention(q, k, v, SCALE, by.everything)[0]
            exact = _TO[target or source](out)
            return "npu_fused_infer_attention_score", args, options, lambda: [exact, torch.zeros(1)]

        CASES[f"infer_{layout}"] = infer


_prompts()


@case
def infer_with_lengths() -> Any:
    q, k, v = _heads()
    k[0, :, 4:], v[0, :, 4:] = math.nan, math.inf
    rows, columns = [3, 5], [4, 7]

    def sees(b: int, i: int, j: int) -> bool:
        return i < rows[b] and j < columns[b] and j <= i + columns[b] - rows[b]

    options = {
        "num_heads": 4, "scale": SCALE, "input_layout": "BNSD", "actual_seq_lengths": rows,
        "actual_seq_lengths_kv": columns, "sparse_mode": 3,
        "atten_mask": torch.ones(2048, 2048).triu(1).bool(),
    }  # fmt: skip
    clean = k.nan_to_num(0), v.nan_to_num(0, 0, 0)
    exact = by.attention(q, *clean, SCALE, sees)[0]
    return "npu_fused_infer_attention_score", (q, k, v), options, lambda: [exact, None]


def _paged(flat: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(keys and values in blocks, table, and what the table names), 2 heads of blocks of 4."""
    pages = [drawn(6, 2, 4, 16) for _ in range(2)]
    table = torch.tensor([[3, 0, 5], [1, 4, -1]], dtype=torch.int32)
    named = [
        torch.stack([torch.cat([page[max(i, 0)] for i in row], 1) for row in table.tolist()])
        for page in pages
    ]
    if flat:
        pages = [page.transpose(1, 2).flatten(2) for page in pages]
    return pages[0], pages[1], table, named[0], named[1]


def _shared() -> None:
    for held in (False, True):
        for count in (None, 4):

            def shared(held: bool = held, count: int | None = count) -> Any:
                q, k, v = _heads(own=2)
                start, first = (drawn(1, 2, 6, 16), drawn(1, 2, 6, 16)), count or 6
                lengths = [4, 7]
                wide = [
                    torch.cat((s[:, :, :first].expand(2, -1, -1, -1), x), 2)
                    for s, x in zip(start, (k, v), strict=True)
                ]
                exact = by.attention(q, *wide, SCALE, lambda b, i, j: j < first + lengths[b])[0]
                options: dict[str, Any] = {
                    "num_heads": 4, "num_key_value_heads": 2, "scale": SCALE,
                    "input_layout": "BNSD", "key_shared_prefix": start[0],
                    "value_shared_prefix": start[1],
                }  # fmt: skip
                numbers = {
                    "actual_seq_lengths_kv": lengths,
                    "actual_shared_prefix_len": None if count is None else [count],
                }
                for label, value in numbers.items():
                    options[label] = torch.tensor(value) if held and value else value
                name = "npu_fused_infer_attention_score"
                return f"ops.{name}" if held else name, (q, k, v), options, lambda: [exact, None]

            CASES[f"infer_prefix_{count}_{'in_tensors' if held else 'in_numbers'}"] = shared


_shared()


@case
def infer_paged() -> Any:
    key, value, table, k, v = _paged(flat=True)
    q, lengths = drawn(2, 4, 1, 16), [11, 6]
    exact = by.attention(q, k, v, SCALE, lambda b, i, j: j < lengths[b])[0]
    options = {
        "num_heads": 4, "num_key_value_heads": 2, "scale": SCALE, "input_layout": "BSND",
        "block_table": table, "block_size": 4, "actual_seq_lengths_kv": lengths,
    }  # fmt: skip
    args = (q.transpose(1, 2).contiguous(), key, value)
    return (
        "npu_fused_infer_attention_score", args, options, lambda: [exact.transpose(1, 2), None]
    )  # fmt: skip


@case
def infer_paged_in_a_row() -> Any:
    key, value, table, k, v = _paged(flat=False)
    q, lengths = drawn(2, 4, 3, 16), [11, 6]

    def sees(b: int, i: int, j: int) -> bool:
        return j <= i + lengths[b] - (3 - b) and j < lengths[b]

    out = by.attention(q, k, v, SCALE, sees)[0].transpose(1, 2)
    exact = torch.cat((out[0], out[1, :2]))
    row = torch.cat((q.transpose(1, 2)[0], q.transpose(1, 2)[1, :2]))
    options = {
        "num_query_heads": 4, "num_key_value_heads": 2, "softmax_scale": SCALE,
        "input_layout": "TND", "block_table": table, "block_size": 4, "sparse_mode": 3,
        "atten_mask": torch.ones(2048, 2048).triu(1).bool(), "actual_seq_qlen": [3, 5],
        "actual_seq_kvlen": lengths,
    }  # fmt: skip
    return "npu_fused_infer_attention_score_v2", (row, key, value), options, lambda: [exact, None]


@case
def infer_with_rope_and_sink() -> Any:
    q, k, v = _heads(own=1)
    ropes, sink = (drawn(2, 4, 5, 8), drawn(2, 1, 7, 8)), drawn(4)
    wide = torch.cat((q, ropes[0]), -1), torch.cat((k, ropes[1]), -1)
    exact = by.attention(*wide, v, SCALE, by.everything, sink=sink)[:2]
    options = {
        "num_query_heads": 4, "num_key_value_heads": 1, "softmax_scale": SCALE,
        "input_layout": "BNSD", "query_rope": ropes[0], "key_rope": ropes[1],
        "learnable_sink": sink, "return_softmax_lse": True,
    }  # fmt: skip
    return "npu_fused_infer_attention_score_v2", (q, k, v), options, lambda: exact


@case
def infer_in_bytes() -> Any:
    q, key, value = drawn(2, 4, 1, 16), whole(2, 2, 7, 16), whole(2, 2, 7, 16)
    scales, shifts = [torch.rand(2, 1, 16) / 9 for _ in range(2)], [drawn(2, 1, 16) for _ in "kv"]
    k = (key.double() + shifts[0].double()) * scales[0].double()
    v = (value.double() + shifts[1].double()) * scales[1].double()
    out = by.attention(q, k, v, SCALE, by.everything)[0]
    options = {
        "num_heads": 4, "num_key_value_heads": 2, "scale": SCALE, "input_layout": "BNSD",
        "key_antiquant_scale": scales[0], "key_antiquant_offset": shifts[0],
        "value_antiquant_scale": scales[1], "value_antiquant_offset": shifts[1],
        "quant_scale2": torch.tensor([30.0]), "quant_offset2": torch.tensor([3.0]),
    }  # fmt: skip
    return (
        "npu_fused_infer_attention_score", (q, key, value), options, lambda: [out * 30 + 3, None]
    )  # fmt: skip


@case
def single_queries() -> Any:
    q, key, value = drawn(2, 4, 1, 16), whole(2, 4, 9, 16), whole(2, 4, 9, 16)
    scale = torch.rand(2, 64) / 9
    k, v = (
        x.double() * s.double().reshape(4, 1, 16) for x, s in zip((key, value), scale, strict=True)
    )
    pse, lengths = drawn(1, 4, 1, 9), [9, 5]
    out = by.attention(q, k, v, SCALE, lambda b, i, j: j < lengths[b], pse)[0]
    args = tuple(_TO["BSH"](x).contiguous() for x in (q, key, value))
    options = {
        "num_heads": 4, "scale_value": SCALE, "pse_shift": pse, "actual_seq_lengths": lengths,
        "antiquant_scale": scale,
    }  # fmt: skip
    return "npu_incre_flash_attention", args, options, lambda: [_TO["BSH"](out)]

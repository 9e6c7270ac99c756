"""What a kernel is called in reports and in kernel_meta: "Square", "MatMulAddGelu"."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.graph.ir import Node
from kernelmill.graph.ops import OPS

_NAMES = {
    "matmul": "MatMul",
    "grouped_matmul": "GroupedMatMul",
    "conv": "Conv",
    "reduce_sum": "ReduceSum",
    "reduce_prod": "ReduceProd",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_peak": "ReduceMax",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "argsort": "ArgSort",
    "argtopk": "TopK",
    "index_put": "IndexPut",
    "floordiv": "FloorDiv",
    "where": "Select",
}
MOST_PARTS = 4
"""A fused kernel is named after so many operators; the rest are in its report."""


def kernel_type(nodes: Sequence[Node]) -> str:
    """CamelCase operators of a kernel, the heaviest first; "Copy" when there are only views."""
    computing = [n for n in nodes if OPS[n.op].kind not in ("view", "layout", "source")]
    ranked = sorted(computing, key=lambda n: _RANK.get(OPS[n.op].kind, 9))
    parts: list[str] = []
    for node in ranked:
        part = operator_name(node)
        if part not in parts:
            parts.append(part)
    if not parts:
        return "Copy"
    return "".join(parts[:MOST_PARTS]) + ("Etc" if len(parts) > MOST_PARTS else "")


_RANK = {
    "contract": 0, "attention": 0, "scan": 1, "sort": 1, "scatter": 1, "reduce": 2, "gather": 3,
}  # fmt: skip


def operator_name(node: Node) -> str:
    """The operator's name in CamelCase; a product of a value with itself is a Square."""
    if node.op == "mul" and node.operands[0] is node.operands[1]:
        return "Square"
    return _NAMES.get(node.op, "".join(part.capitalize() for part in node.op.split("_")))

"""Constant operands of f32 as pieces of bf16, and their magnitudes (see lower/emit/pieces.py)."""

from __future__ import annotations

from kernelmill.core.dtype import BF16, F32
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import Value


def piece_values(value: Value, count: int, origin: str) -> list[Value]:
    """Return the highest `count` pieces of a value, each a value of bf16."""
    builder = GraphBuilder("pieces")
    builder.origin = origin
    found: list[Value] = []
    rest = value
    for _ in range(count):
        if found:
            rest = builder.emit("sub", rest, builder.emit("cast", found[-1], dtype=F32))
        found.append(builder.emit("cast", rest, dtype=BF16))
    return found


def magnitudes_of_rows(rows: Value, builder: GraphBuilder) -> tuple[Value, Value]:
    """Of each row of a value (1, rows, numbers) the least magnitude that is not 0, infinity where
    all are, and the largest, NaN where one is: (1, rows) each."""
    absolute = builder.emit("abs", rows)
    zero, infinity = (
        builder.emit("full", value=number, dtype=F32, shape=rows.shape)
        for number in (0.0, float("inf"))
    )
    others = builder.emit("where", builder.emit("eq", absolute, zero), infinity, absolute)
    least = builder.emit("reduce_min", others, dims=(2,))
    return least, builder.emit("reduce_max", absolute, dims=(2,))

"""Recurrent layers against the definition, on this processor and as the interpreter runs others."""

from __future__ import annotations

import pytest
import torch

from kernelmill.core.dtype import F32, InputRole
from kernelmill.core.target.machine import profile
from kernelmill.graph.builder import GraphBuilder
from kernelmill.graph.ir import CELL_GATES
from tests.compiled import check, graph

TARGETS = [profile(name) for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64-neon")]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("cell", CELL_GATES)
@pytest.mark.parametrize(("steps", "batch", "size"), [(1, 1, 1), (3, 1, 21), (2, 5, 16), (3, 7, 9)])
def test_states(steps: int, batch: int, size: int, cell: str, backward: bool) -> None:
    wide = CELL_GATES[cell] * size
    more = {"lstm": [(batch, size)], "gru": [(size,)]}.get(cell, [])
    shapes = [(steps, batch, wide), (size, wide), (batch, size), *more]
    built = graph(
        lambda b, *values: b.emit("recurrent", *values, cell=cell, backward=backward),
        *((F32, shape) for shape in shapes),
    )
    values = [torch.randn(*shape) / 3 for shape in shapes]
    check(built, *values, targets=TARGETS, interpret=True)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("steps", "batch", "size", "width"), [(1, 1, 2, 1), (3, 1, 21, 5), (4, 5, 40, 16), (3, 7, 9, 8)]
)
def test_states_that_are_projected(
    steps: int, batch: int, size: int, width: int, constant: bool, backward: bool
) -> None:
    b = GraphBuilder("g")
    shapes = {
        "gates": (steps, batch, 4 * size), "weight": (width, 4 * size), "state": (batch, width),
        "cell": (batch, size), "narrow": (size, width),
    }  # fmt: skip
    values = [
        b.input(name, F32, shape, role=InputRole.PARAM)
        if constant and name in ("weight", "narrow")
        else b.input(name, F32, shape)
        for name, shape in shapes.items()
    ]
    b.graph.results = [b.emit("recurrent", *values, cell="lstm", backward=backward)]
    given = [torch.randn(shape) / 3 for shape in shapes.values()]
    check(b.graph, *given, targets=TARGETS, interpret=True)

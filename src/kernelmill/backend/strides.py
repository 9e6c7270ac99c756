"""Tells AOTAutograd how the forward's results lie in memory, where that is not as traced."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelmill.frontend import lies_row_major
from kernelmill.graph.ir import Graph, Value
from kernelmill.torch_internals.autograd import output_strides


def report_output_strides(gm: fx.GraphModule, graph: Graph) -> None:
    """Fill the tracing context's list: strides of a result that is row-major here and was traced
    with gaps (a slice of something larger), None for every other one."""
    asked = output_strides()
    if asked is None:
        return
    traced: Any = gm.graph.output_node().args[0]
    for node, result in zip(traced, graph.results, strict=True):
        moved = isinstance(result, Value) and _moved(result, node.meta["val"])
        asked.append(_row_major(node.meta["val"]) if moved else None)


def _moved(result: Value, traced: torch.Tensor) -> bool:
    made_here = result.node is not None and result.type.strides is None
    return made_here and not lies_row_major(traced)


def _row_major(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Strides of a dense row-major tensor of this shape; symbolic where the shape is."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))

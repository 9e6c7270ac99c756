"""Report of the forward's strides to AOTAutograd, where they differ from the trace."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

from torch import fx

from kernelmill.frontend import lies_row_major
from kernelmill.graph.ir import Graph, Value
from kernelmill.torch_internals.autograd import output_strides


def report_output_strides(gm: fx.GraphModule, graph: Graph) -> None:
    """Fill the tracing context's list: strides of a result that is row-major here and was traced
    with gaps (a slice of a larger tensor), None for every other one."""
    asked = output_strides()
    if asked is None:
        return
    traced: Any = gm.graph.output_node().args[0]
    for node, result in zip(traced, graph.results, strict=True):
        made = isinstance(result, Value) and result.node is not None and result.type.strides is None
        moved = made and not lies_row_major(node.meta["val"])
        asked.append(_row_major(node.meta["val"].shape) if moved else None)


def _row_major(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return strides of a dense row-major tensor of this shape; symbolic where the shape is."""
    return tuple(accumulate(reversed(shape), mul, initial=1))[-2::-1]

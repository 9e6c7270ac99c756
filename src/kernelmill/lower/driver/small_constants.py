"""Small values that depend only on parameters, computed by kernels for all sizes.

A network has batch norms of many sizes, whose scale and shift are computed once. Kernels for each
size would be a third of an image network's kernels, for code that runs once. These kernels are
compiled once for all networks that share a store.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.core.dim import product
from kernelmill.core.errors import UnsupportedError
from kernelmill.graph.ir import Graph, OpKind
from kernelmill.graph.ops import OPS
from kernelmill.graph.text import print_graph
from kernelmill.lower.driver.lowered import Lowered, LoweredOperator
from kernelmill.lower.driver.operators import Operator, generalise
from kernelmill.lower.driver.placement import Placed, Work
from kernelmill.plan.ir import BufferKind, TensorResult

_MOST_ELEMENTS = 2**16
"""More are worth a kernel of their own, which knows how they lie."""

SmallConstants = dict[Work, tuple[Operator, LoweredOperator]]


def lower_small_constants(
    placed: Placed, lower: Callable[[Graph], Lowered], known: dict[str, Lowered | None]
) -> SmallConstants:
    """Lower the small constants, as operators by themselves. `known` has operators lowered before
    by the text of their graphs, and gets the new ones."""
    found: SmallConstants = {}
    for step in placed.steps:
        if not isinstance(step, Work) or not _is_small(step):
            continue
        operator = generalise(step, placed)
        if operator is None or operator.general is None:
            continue
        text = print_graph(operator.general, names=False)
        if text not in known:
            known[text] = _lowered(operator.general, lower)
        lowered = known[text]
        if lowered is not None:
            found[step] = operator, LoweredOperator(lowered, operator.values)
    return found


def _is_small(work: Work) -> bool:
    """Check that the work runs when weights are packed, is pointwise and has few elements."""
    sizes = [product(value.shape) for value in work.targets]
    return (
        work.constant
        and all(isinstance(size, int) and size <= _MOST_ELEMENTS for size in sizes)
        and all(_is_pointwise(node.op) for node in work.nodes)
    )


def _is_pointwise(op: str) -> bool:
    return OPS[op].kind is OpKind.POINTWISE or OPS[op].transparent or op == "full"


def _lowered(graph: Graph, lower: Callable[[Graph], Lowered]) -> Lowered | None:
    """Return one launch that fills the results and needs no other memory, None without one."""
    try:
        lowered = lower(graph)
    except UnsupportedError:
        return None
    plan = lowered.plan
    filled = {one.buffer for one in plan.results if isinstance(one, TensorResult)}
    read = {n for n, buffer in enumerate(plan.buffers) if buffer.kind == BufferKind.INPUT}
    whole = filled | read == set(range(len(plan.buffers))) and not filled & read
    launched = len(plan.steps) == 1 and not plan.prepare and not plan.views
    return lowered if launched and whole and len(filled) == len(plan.results) else None

"""The sort template: sort and topk as positions, in eager's order of equal elements."""

from __future__ import annotations

from kernelmill.core.dim import Expr
from kernelmill.graph.ir import Node
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.schedule.template import NodeTemplate, bind_node
from kernelmill.lower.templates.sort.emit import emit_sort
from kernelmill.lower.templates.sort.spec import RADIX_SORTED, SortSpec, Top, plan_sort


def _sort_spec(emitter: Emitter, node: Node, target: Location) -> SortSpec:
    source, attrs = node.operands[0], node.attrs
    axis = attrs["dim"]
    assert isinstance(axis, int)
    stable: bool | int
    if node.op == "argtopk":
        k = attrs["k"]
        assert isinstance(k, (int, Expr))
        top = Top(k, bool(attrs["sorted"]))
        descending, stable = bool(attrs["largest"]), False
    else:
        top, descending, stable = None, bool(attrs["descending"]), bool(attrs["stable"])
        if not descending and source.dtype.is_integer and len(source.shape) == 1:
            stable = stable or RADIX_SORTED

    return SortSpec(
        source.shape, axis, source.dtype, descending, stable, top,
        lambda _, index, lane: emitter.read(source, index, lane),
        lambda _, index, position: emitter.write(target, index, None, position),
    )  # fmt: skip


SORT = NodeTemplate(
    "sort", frozenset({"argsort", "argtopk"}), bind_node(_sort_spec), plan_sort, emit_sort
)
"""Which element comes i-th along an axis."""

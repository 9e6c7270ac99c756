"""The search template: where values stand among ascending numbers."""

from __future__ import annotations

from kernelmill.core.dim import Dim
from kernelmill.graph.ir import Node
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.sizes import Dims
from kernelmill.lower.schedule.template import NodeTemplate, bind_node
from kernelmill.lower.templates.search.emit import emit_search
from kernelmill.lower.templates.search.spec import SearchSpec, plan_search


def _search_spec(emitter: Emitter, node: Node, target: Location) -> SearchSpec:
    (rows, values), dtype = node.operands, node.result.dtype

    def number(_: KernelBuilder, index: Dims, position: Dim) -> Register:
        row = index[:-1] if len(rows.shape) > 1 else ()
        return emitter.read(rows, (*row, position), None)

    def store(builder: KernelBuilder, index: Dims, position: Register) -> None:
        if position.type.dtype != dtype:
            position = builder.op("cast", position, dtype=dtype)
        with emitter.block():
            emitter.store(target, index, position)

    return SearchSpec(
        values.shape, rows.shape[-1], bool(node.attrs["right"]),
        lambda _, index: emitter.read(values, index, None), number, store,
    )  # fmt: skip


SEARCH = NodeTemplate(
    "search", frozenset({"searchsorted"}), bind_node(_search_spec), plan_search, emit_search
)
"""Positions in rows of ascending numbers, found by halving."""

"""The scatter template: scatter and index_put into a buffer that holds the first operand."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim
from kernelmill.graph.definition import Combine
from kernelmill.graph.ir import Node, Value
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.views import Index
from kernelmill.lower.schedule.template import NodeTemplate, bind_node
from kernelmill.lower.templates.scatter.emit import emit_scatter
from kernelmill.lower.templates.scatter.spec import ScatterSpec, ScatterTarget, plan_scatter


def _scatter_spec(emitter: Emitter, node: Node, target: Location) -> ScatterSpec:
    made = _scatter if node.op == "scatter" else _put
    return made(emitter, node, target)


def _scatter(emitter: Emitter, node: Node, target: Location) -> ScatterSpec:
    """Element i of the source goes to i with position `dim` looked up in the index tensor."""
    _, indices, source = node.operands
    dim, mode = node.attrs["dim"], Combine(str(node.attrs["mode"]))
    assert isinstance(dim, int)

    def full(i: Index, w: Index) -> Index:
        return (*w[:dim], *i, *w[dim:])

    return ScatterSpec(
        _target(emitter, node, target), (dim,), (indices.shape[dim],),
        (*indices.shape[:dim], *indices.shape[dim + 1 :]),
        lambda _, i, w: [_position(emitter, node, indices, full(i, w))],
        lambda _, i, w, lane: emitter.read(source, full(i, w), lane),
        mode, shared=False,
    )  # fmt: skip


def _put(emitter: Emitter, node: Node, target: Location) -> ScatterSpec:
    """The values' dims are the kept dims of x with the indices' shape put in at `at`."""
    x, values, *indices = node.operands
    dims, at, mode = node.attrs["dims"], node.attrs["at"], Combine(str(node.attrs["mode"]))
    assert isinstance(dims, tuple) and isinstance(at, int)
    window = tuple(size for d, size in enumerate(x.shape) if d not in dims)
    return ScatterSpec(
        _target(emitter, node, target), tuple(d for d in dims if isinstance(d, int)),
        indices[0].shape, window,
        lambda _, i, w: [_position(emitter, node, operand, i) for operand in indices],
        lambda _, i, w, lane: emitter.read(values, (*w[:at], *i, *w[at:]), lane),
        mode, shared=True,
    )  # fmt: skip


def _target(emitter: Emitter, node: Node, location: Location) -> ScatterTarget:
    emitter.declare_status()
    emitter.param(location, "in")
    name = emitter.param(location, "out")
    shape: Sequence[Dim] = node.result.shape
    return ScatterTarget(name, location.dtype, tuple(shape), location.strides, location.offset)


def _position(emitter: Emitter, node: Node, value: Value, index: Index) -> Register:
    """An element of an index tensor; the template wraps negative ones and checks them."""
    b = emitter.builder
    register = emitter.read(value, index, None)
    if node.attrs.get("unsigned"):
        # No negative one is in range, and so is no such large one.
        register = b.op("select", b.op("lt", register, 0), 2**63 - 1, register)
    return register


SCATTER = NodeTemplate(
    "scatter",
    frozenset({"scatter", "index_put"}),
    bind_node(_scatter_spec),
    plan_scatter,
    emit_scatter,
)
"""Writes to computed places, in the order of a sequential loop."""

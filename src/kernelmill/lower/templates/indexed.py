"""Binds scan, sort, scatter and index_put nodes to their templates."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.core.dim import Dim, Expr
from kernelmill.core.machine import Machine
from kernelmill.graph.definition import Combine, OpKind
from kernelmill.graph.ir import Node, Value
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.templates.scan import ScanSpec, emit_scan, plan_scan
from kernelmill.lower.templates.scatter import (
    ScatterSpec,
    ScatterTarget,
    emit_scatter,
    plan_scatter,
)
from kernelmill.lower.templates.sort.sorting import (
    RADIX_SORTED,
    SortSpec,
    Top,
    emit_sort,
    plan_sort,
)


def emit_indexed(emitter: Emitter, node: Node, target: Location, machine: Machine) -> Dim:
    """Emit a scan, a sort, or a scatter into a buffer that holds the node's first operand already.

    Returns the estimated work in ns.
    """
    kind = OPS[node.op].kind
    if kind is OpKind.SCAN:
        return _scan(emitter, node, target, machine)
    if kind is OpKind.SORT:
        return _sort(emitter, node, target, machine)
    spec = _scatter(emitter, node, target) if node.op == "scatter" else _put(emitter, node, target)
    schedule = plan_scatter(spec, machine)
    emitter.builder.set_tasks(schedule.tasks)
    emit_scatter(emitter.builder, spec, schedule)
    return schedule.work


def _scan(emitter: Emitter, node: Node, target: Location, machine: Machine) -> Dim:
    source = node.operands[0]
    axis = node.attrs["dim"]
    assert isinstance(axis, int)

    def store(_: KernelBuilder, index: Index, lane: Lane | None, register: Register) -> None:
        with emitter.block() if lane is None else emitter.lanes(lane):
            emitter.store(target, index, register)

    spec = ScanSpec(
        source.shape, axis, OPS[node.op].kernel_op or "", source.dtype,
        lambda _, index, lane: _element(emitter, source, index, lane), store,
    )  # fmt: skip
    schedule = plan_scan(spec, machine)
    emitter.builder.set_tasks(schedule.tasks)
    emit_scan(emitter.builder, spec, schedule)
    return schedule.work


def _sort(emitter: Emitter, node: Node, target: Location, machine: Machine) -> Dim:
    source, attrs = node.operands[0], node.attrs
    axis = attrs["dim"]
    assert isinstance(axis, int)
    if node.op == "argtopk":
        k = attrs["k"]
        assert isinstance(k, (int, Expr))
        top = Top(k, bool(attrs["sorted"]))
        descending, stable = bool(attrs["largest"]), False
    else:
        top, descending, stable = None, bool(attrs["descending"]), bool(attrs["stable"])
        if not descending and source.dtype.is_integer and len(source.shape) == 1:
            stable = stable or RADIX_SORTED

    def store(_: KernelBuilder, index: Index, register: Register) -> None:
        with emitter.block():
            emitter.store(target, index, register)

    spec = SortSpec(
        source.shape, axis, source.dtype, descending, stable, top,
        lambda _, index, lane: _element(emitter, source, index, lane), store,
    )  # fmt: skip
    schedule = plan_sort(spec, machine)
    emit_sort(emitter.builder, spec, schedule)
    return schedule.work


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
        lambda _, i, w, lane: _element(emitter, source, full(i, w), lane),
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
        lambda _, i, w, lane: _element(emitter, values, (*w[:at], *i, *w[at:]), lane),
        mode, shared=True,
    )  # fmt: skip


def _target(emitter: Emitter, node: Node, location: Location) -> ScatterTarget:
    emitter.declare_status()
    emitter.param(location, "in")
    name = emitter.param(location, "out")
    shape: Sequence[Dim] = node.result.shape
    return ScatterTarget(name, location.dtype, tuple(shape), location.strides, location.offset)


def _element(emitter: Emitter, value: Value, index: Index, lane: Lane | None) -> Register:
    with emitter.block() if lane is None else emitter.lanes(lane):
        return emitter.element(value, index)


def _position(emitter: Emitter, node: Node, value: Value, index: Index) -> Register:
    """An element of an index tensor; the template wraps negative ones and checks them."""
    b = emitter.builder
    register = _element(emitter, value, index, None)
    if node.attrs.get("unsigned"):
        # No negative one is in range, and so is no such large one.
        register = b.op("select", b.op("lt", register, 0), 2**63 - 1, register)
    return register

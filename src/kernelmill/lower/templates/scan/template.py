"""The scan template: running sums and products along one axis, in eager's order."""

from __future__ import annotations

from kernelmill.graph.ir import Node
from kernelmill.graph.ops import OPS
from kernelmill.kernel.builder import KernelBuilder
from kernelmill.kernel.ir import Value as Register
from kernelmill.lower.elements.emitter import Emitter, Location
from kernelmill.lower.elements.lane import Lane
from kernelmill.lower.elements.views import Index
from kernelmill.lower.schedule.template import NodeTemplate, bind_node
from kernelmill.lower.templates.scan.emit import emit_scan
from kernelmill.lower.templates.scan.spec import ScanSpec, plan_scan


def _scan_spec(emitter: Emitter, node: Node, target: Location) -> ScanSpec:
    source, axis = node.operands[0], node.attrs["dim"]
    assert isinstance(axis, int)

    def store(_: KernelBuilder, index: Index, lane: Lane | None, register: Register) -> None:
        with emitter.block() if lane is None else emitter.lanes(lane):
            emitter.store(target, index, register)

    return ScanSpec(
        source.shape, axis, OPS[node.op].kernel_op or "", source.dtype,
        lambda _, index, lane: emitter.read(source, index, lane), store,
    )  # fmt: skip


SCAN = NodeTemplate(
    "scan", frozenset({"cumsum", "cumprod"}), bind_node(_scan_spec), plan_scan, emit_scan
)
"""result[..., i, ...] is the sum or product of elements 0..i."""

"""From what lowering made to a program that can be called: objects, links, and the report."""

from __future__ import annotations

from collections import Counter

from kernelmill.compiler.objects import differences, obtain, obtain_dims, requests_of
from kernelmill.compiler.report import CompileReport, KernelReport, collecting, publish
from kernelmill.core.log import get_logger
from kernelmill.core.target import Target
from kernelmill.graph.ir import Graph
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.program import Lowered
from kernelmill.plan.ir import Launch
from kernelmill.runtime.dims import dims_needed
from kernelmill.runtime.program import DIMS_OBJECT, Program, load
from kernelmill.store.entry import Entry
from kernelmill.store.store import Store

_log = get_logger("compiler")


def link(
    lowered: Lowered, graph: Graph, report: CompileReport, store: Store, target: Target
) -> Program:
    """The program, its report filled and published.

    Raises VerificationError for a kernel that lowering got wrong, StoreError as the store does.
    """
    with report.stage("verify"):
        for kernel in lowered.kernels.values():
            verify_kernel(kernel, "lowering")
    with report.stage("codegen"):
        entries = obtain(requests_of(lowered.plan, lowered.kernels), store, target)
        objects = {name: entry.object for name, entry in entries.items()}
        if lowered.plan.symbols:
            dims = dims_needed(lowered.plan)
            entry = obtain_dims(lowered.plan.symbols, dims, store, target)
            objects[DIMS_OBJECT] = entry.object
    with report.stage("link"):
        program = load(lowered.plan, objects)
    _fill(report, graph, lowered, entries, store)
    publish(report)
    return program


def _fill(
    report: CompileReport, graph: Graph, lowered: Lowered, entries: dict[str, Entry], store: Store
) -> None:
    steps = (*lowered.plan.prepare, *lowered.plan.steps)
    launches = Counter(step.kernel for step in steps if isinstance(step, Launch))
    report.arena_bytes = str(lowered.plan.arena_bytes)
    for ref in lowered.plan.kernels:
        entry = entries[ref.name]
        new = entry.source == "compiled"
        kind = "dynamic" if lowered.kernels[ref.name].dims else "static"
        report.kernels.append(
            KernelReport(
                entry.name, ref.type, ref.operators, ref.origin, entry.source, launches[ref.name],
                differences(entry, store, ref.type) if new and collecting() else (), kind,
            )
        )  # fmt: skip
    for node in graph.nodes:
        if node.op == "aten":
            reason = str(node.attrs["reason"])
            report.fallbacks.append((str(node.attrs["target"]), reason, node.origin))
    _log.info(
        "%s: %d kernels (%d compiled, %d reused), %d ATen calls, %s",
        report.name, len(report.kernels), report.compiled, report.reused, len(report.fallbacks),
        ", ".join(f"{stage} {spent * 1e3:.0f} ms" for stage, spent in report.seconds.items()),
    )  # fmt: skip
    for kernel in report.kernels:
        _log.info("%s: %d x %s, %s", report.name, kernel.launches, kernel.name, kernel.kind)

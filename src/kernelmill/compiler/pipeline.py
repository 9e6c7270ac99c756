"""The compiler on one page: graph → passes → kernels and plan → objects → program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernelmill.compiler.dump import GraphDump
from kernelmill.compiler.objects import differences, obtain, obtain_dims, requests_of
from kernelmill.compiler.report import CompileReport, KernelReport, collecting, publish
from kernelmill.config.compiler_config import CompilerConfig
from kernelmill.core.log import get_logger
from kernelmill.core.target import host
from kernelmill.graph.ir import Graph
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.lower.program import Lowered, lower_graph
from kernelmill.passes import DEFAULT, Pass, run_pipeline
from kernelmill.passes.identities import RemoveIdentities
from kernelmill.plan.ir import Launch
from kernelmill.runtime.dims import dims_needed
from kernelmill.runtime.program import DIMS_OBJECT, Program, load
from kernelmill.store.entry import Entry
from kernelmill.store.store import Store, open_store

_log = get_logger("compiler")


def compile_graph(graph: Graph, config: CompilerConfig) -> Program:
    """A program that computes what the graph says.

    Raises UnsupportedError when a node has no lowering, VerificationError when a stage broke the
    program (a fault of kernelmill), StoreError when the kernel folder cannot be trusted.
    """
    report = CompileReport(graph.name, nodes_before=len(graph.nodes))
    target = host()
    dump = GraphDump(config)
    dump.write("original", graph)
    with report.stage("passes"):
        graph = run_pipeline(graph, _passes(config))
    dump.write("optimized", graph)
    report.nodes_after = len(graph.nodes)
    with report.stage("lower"):
        separate = not config.experimental_config.pattern_fusion_pass
        lowered = lower_graph(graph, target, separate)
    with report.stage("verify"):
        for kernel in lowered.kernels.values():
            verify_kernel(kernel, "lowering")
    store = open_store(config.experimental_config.kernel_meta_dir)
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


def _passes(config: CompilerConfig) -> Sequence[Pass]:
    if config.experimental_config.remove_noop_ops:
        return DEFAULT
    return [rewrite for rewrite in DEFAULT if not isinstance(rewrite, RemoveIdentities)]


def _fill(
    report: CompileReport, graph: Graph, lowered: Lowered, entries: dict[str, Entry], store: Store
) -> None:
    steps = (*lowered.plan.prepare, *lowered.plan.steps)
    launches = Counter(step.kernel for step in steps if isinstance(step, Launch))
    report.arena_bytes = str(lowered.plan.arena_bytes)
    for ref in lowered.plan.kernels:
        entry = entries[ref.name]
        new = entry.source == "compiled"
        report.kernels.append(
            KernelReport(
                entry.name, ref.type, ref.operators, ref.origin, entry.source, launches[ref.name],
                differences(entry, store, ref.type) if new and collecting() else (),
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

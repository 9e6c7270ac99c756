"""The compiler on one page: graph → passes → kernels and plan → objects → program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kernelmill.compiler.calibration import machine_for
from kernelmill.compiler.captures import CapturedProgram, Captures
from kernelmill.compiler.choices import Choices
from kernelmill.compiler.collecting import CollectedProgram, collect, is_collecting
from kernelmill.compiler.dump import GraphDump
from kernelmill.compiler.gear_kernels import GearSizes, sharing_programs
from kernelmill.compiler.linking import LoweredProgram, link_all
from kernelmill.compiler.objects import KernelBuilds, Request
from kernelmill.compiler.operators import Operators
from kernelmill.compiler.recording import note
from kernelmill.compiler.report import CompileReport
from kernelmill.compiler.static_build import StaticBuild, build_folder
from kernelmill.compiler.tuning import Tuner
from kernelmill.config.compiler_config import CompilerConfig
from kernelmill.config.super_kernel_marks import RangeOptions, options_of
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.garbage import collection_paused
from kernelmill.core.isa import target_isa, why_not_here
from kernelmill.core.log import get_logger
from kernelmill.core.machine import Machine
from kernelmill.core.threads import quick_switches
from kernelmill.graph.ir import Graph
from kernelmill.graph.sizes import GraphSource, at_sizes
from kernelmill.lower.driver.kernels import KernelCache
from kernelmill.lower.driver.lowered import Announce, Lowered, NewKernel
from kernelmill.lower.driver.program import lower_graph
from kernelmill.passes import DEFAULT, Pass, run_pipeline
from kernelmill.passes.identities import RemoveIdentities
from kernelmill.passes.products import AllowProducts
from kernelmill.runtime.executor import executor
from kernelmill.runtime.program import Program
from kernelmill.store.store import Store, open_store

_log = get_logger("compiler")


@collection_paused()
def compile_graph(
    graph: Graph, config: CompilerConfig, to_run: bool = True
) -> Program | CapturedProgram | CollectedProgram:
    """A program that computes what the graph says. One that is not `to_run` here may be for an ISA
    that this machine lacks, and must not be called then. Inside `collecting` nothing is compiled,
    and the program runs in eager.

    Raises UnsupportedError when a node has no lowering, VerificationError when a stage broke the
    program (a fault of kernelmill), StoreError when the kernel folder cannot be trusted,
    ConfigError for a target that this machine cannot run.
    """
    (program,) = compile_graphs([graph], config, to_run)
    return program


def compile_graphs(
    graphs: Sequence[Graph], config: CompilerConfig, to_run: bool = True
) -> Sequence[Program | CapturedProgram | CollectedProgram]:
    """A program for each graph; they share the memory of their calls. All kernels are compiled
    together, in parallel. Raises what `compile_graph` does."""
    store, machine = _surroundings(config, to_run)
    optimised = (optimise(graph, config) for graph in graphs)
    if config.mode == REDUCE_OVERHEAD:
        operators = _operators(config, store, machine)
        if is_collecting():
            return collect((operators.lowered(*one) for one in optimised), machine)
        return [_captures(config, operators, *one).program() for one in optimised]
    return _compiled(optimised, config, store, machine)


Programs = Sequence[Program | CapturedProgram | CollectedProgram]


def compile_at_sizes(graph: Graph, gears: Sequence[GearSizes], config: CompilerConfig) -> Programs:
    """A program for each gear of a graph over symbols, as `compile_graphs` makes them. Gears share
    the kernels of the program for all sizes where that loses little (gear_kernels.py)."""
    if _separately(config):
        return compile_graphs([at_sizes(graph, one.values, one.name) for one in gears], config)
    surroundings = _surroundings(config, to_run=True)
    sharing = _sharing(graph, gears, config, surroundings[1])
    programs = (
        sharing[gear.name]
        if gear.name in sharing
        else optimise(at_sizes(graph, gear.values, gear.name), config)
        for gear in gears
    )
    return _compiled(programs, config, *surroundings)


def compile_in_batches(
    graph: Graph, gears: Sequence[GearSizes], config: CompilerConfig
) -> Iterator[tuple[Sequence[GearSizes], Programs]]:
    """What `compile_at_sizes` makes, in parts: the gears that share kernels, then each other."""
    sharing: Mapping[str, LoweredProgram] = {}
    if not _separately(config):
        surroundings = _surroundings(config, to_run=True)
        sharing = _sharing(graph, gears, config, surroundings[1])
        if sharing:
            together = [gear for gear in gears if gear.name in sharing]
            drafts = [sharing[gear.name] for gear in together]
            yield together, _compiled(drafts, config, *surroundings)
    for gear in gears:
        if gear.name not in sharing:
            yield [gear], compile_at_sizes(graph, [gear], config)


def _separately(config: CompilerConfig) -> bool:
    """Whether each gear is compiled as a graph by itself."""
    return config.mode == REDUCE_OVERHEAD or config.aoe_config.aoe_mode is not None


def _sharing(
    graph: Graph, gears: Sequence[GearSizes], config: CompilerConfig, machine: Machine
) -> dict[str, LoweredProgram]:
    separate = not config.experimental_config.pattern_fusion_pass
    ranges = _automatic_ranges(config)

    def lower(symbolic: Graph, announce: Announce | None) -> Lowered:
        return lower_graph(symbolic, machine, separate, announce=announce)

    found = sharing_programs(*optimise(graph, config, dump=False), gears, lower)
    return {name: replace(draft, automatic_ranges=ranges) for name, draft in found.items()}


def _surroundings(config: CompilerConfig, to_run: bool) -> tuple[Store, Machine]:
    target_isa(config.target, to_run and not is_collecting())
    store = open_store(config.experimental_config.kernel_meta_dir, config.on_untrusted)
    measure = config.aoe_config.aoe_mode is not None
    return store, machine_for(store, config.target, measure=measure)


Optimised = tuple[Graph, CompileReport]


def _compiled(
    programs: Iterable[Optimised | LoweredProgram],
    config: CompilerConfig,
    store: Store,
    machine: Machine,
) -> Sequence[Program | CollectedProgram]:
    if is_collecting():
        return collect(_drafts(programs, config, store, machine), machine)
    drafts = list[LoweredProgram]()

    def lowered() -> Iterator[LoweredProgram]:
        for draft in _drafts(programs, config, store, machine, partial(_begin, builds)):
            drafts.append(draft)
            yield draft

    with quick_switches(), KernelBuilds(store, machine.isa) as builds:
        builds.beside(executor)  # there is no kernel yet
        linked = link_all(lowered(), store, machine, builds)
    fused = config.experimental_config.pattern_fusion_pass
    for program, draft in zip(linked, drafts, strict=True):
        program.check_weights(config.check_weights)
        note(program, draft.source, fused=fused)
    return linked


def _drafts(
    programs: Iterable[Optimised | LoweredProgram],
    config: CompilerConfig,
    store: Store,
    machine: Machine,
    begin: Callable[[str, NewKernel], None] | None = None,
) -> Iterator[LoweredProgram]:
    """The graphs lowered, one by one, in the manner that the options say, or as they are where they
    were; `begin` is told of each kernel as soon as there is one, with the graph's name."""
    separate = not config.experimental_config.pattern_fusion_pass
    automatic = _automatic_ranges(config)
    kernels = KernelCache()
    for one in programs:
        if isinstance(one, LoweredProgram):
            yield one
            continue
        graph, report = one
        tuner = Tuner(store, machine) if config.aoe_config.aoe_mode else None
        with report.stage("lower" if tuner is None else "lower and tune"):
            pick = None if tuner is None else tuner.pick
            shared = None if graph.symbols else kernels
            announce = None if begin is None else partial(begin, graph.name)
            lowered = lower_graph(
                graph, machine, separate, pick=pick, cache=shared, announce=announce
            )
        if tuner is not None:
            tuner.close()
            report.tuned, report.schedules_measured = tuner.settled, tuner.measured
        yield LoweredProgram(lowered, GraphSource(graph), report, automatic_ranges=automatic)


def _begin(builds: KernelBuilds, graph: str, new: NewKernel) -> None:
    ref = new.ref
    builds.begin(Request(new.kernel, ref.operators, ref.origin, new.shapes, graph, new.text))


def recaptured(program: Program, graph: Graph, config: CompilerConfig) -> Program | CapturedProgram:
    """What serves calls in mode reduce-overhead, of a program for all sizes that was loaded.
    `graph` is what it was lowered from."""
    store = open_store(config.experimental_config.kernel_meta_dir, config.on_untrusted)
    operators = _operators(config, store, machine_for(store, config.target))
    report = CompileReport(graph.name, nodes_before=len(graph.nodes))
    return _captures(config, operators, graph, report).around(program)


def _operators(config: CompilerConfig, store: Store, machine: Machine) -> Operators:
    build = _static_build(config, store, machine)
    return Operators(store, machine, build, _automatic_ranges(config))


def _captures(
    config: CompilerConfig, operators: Operators, graph: Graph, report: CompileReport
) -> Captures:
    limit = config.debug.aclgraph.static_capture_size_limit
    assert limit is not None
    return Captures(operators, graph, report, limit, config.check_weights)


def _automatic_ranges(config: CompilerConfig) -> RangeOptions | None:
    experimental = config.experimental_config
    captures = experimental.aclgraph
    wanted = experimental.super_kernel_optimize or (
        config.mode == REDUCE_OVERHEAD and captures._super_kernel_optimize
    )
    if not wanted:
        return None
    options = {"stream-fusion": 1, **(captures._super_kernel_optimize_options or {})}
    return options_of({**options, **(captures._super_kernel_debug_options or {})})


def optimise(graph: Graph, config: CompilerConfig, dump: bool = True) -> Optimised:
    """The graph after the passes that the options ask for, and the report of its compile so far. It
    is in no dump where no program is made of it as it is."""
    report = CompileReport(graph.name, nodes_before=len(graph.nodes))
    files = GraphDump(config) if dump else None
    if files is not None:
        files.write("original", graph)
    with report.stage("passes"):
        graph = run_pipeline(graph, _passes(config))
    if files is not None:
        files.write("optimized", graph)
    report.nodes_after = len(graph.nodes)
    return graph, report


def _static_build(config: CompilerConfig, store: Store, machine: Machine) -> StaticBuild | None:
    option = config.experimental_config.aclgraph
    sizes = tuple(option._aclnn_static_shape_kernel_sym_value_range or ())
    if not option._aclnn_static_shape_kernel:
        if sizes:
            _log.warning(
                "config.experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range "
                "does nothing without _aclnn_static_shape_kernel"
            )
        return None
    folder = build_folder(option._aclnn_static_shape_kernel_build_dir)
    symbol = option._aclnn_static_shape_kernel_sym_index
    assert symbol is not None
    choices = Choices(store, machine, runs_here=not why_not_here(machine.isa))
    return StaticBuild(choices, folder, symbol, sizes)


def _passes(config: CompilerConfig) -> Sequence[Pass]:
    passes = DEFAULT
    if not config.experimental_config.remove_noop_ops:
        passes = tuple(one for one in DEFAULT if not isinstance(one, RemoveIdentities))
    return passes if config.float32_pieces else (*passes, AllowProducts(0))

"""The compiler on one page: graph → passes → kernels and plan → objects → program."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import field, replace
from functools import partial
from itertools import chain
from pathlib import Path

from kernelmill.compiler.calibration import machine_for
from kernelmill.compiler.captures import CapturedProgram, Captures, Operators
from kernelmill.compiler.choices import Choices
from kernelmill.compiler.linking import (
    Compiled,
    EagerProgram,
    GearSizes,
    LoweredProgram,
    OnCompiled,
    link_all,
    sharing_programs,
    with_names,
    with_super_kernels,
    with_theirs,
)
from kernelmill.compiler.objects import KernelBuilds, Request, kernel_key
from kernelmill.compiler.report import GraphReport
from kernelmill.compiler.static_build import StaticBuild, build_folder, note
from kernelmill.compiler.tuning import Tuner
from kernelmill.config.compiler_config import CompilerConfig
from kernelmill.config.super_kernel_marks import RangeOptions, options_of
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import file_errors
from kernelmill.core.interpreter import collection_paused, quick_switches
from kernelmill.core.log import get_logger
from kernelmill.core.target.isa import Isa, target_isa, why_not_here
from kernelmill.core.target.machine import Machine
from kernelmill.graph.builder import GraphSource, at_sizes
from kernelmill.graph.ir import Graph
from kernelmill.graph.pbtxt import to_pbtxt
from kernelmill.graph.python_source import to_python
from kernelmill.graph.text import print_graph
from kernelmill.lower.driver.kernels import KernelCache
from kernelmill.lower.driver.lowered import Announce, Lowered, NewKernel
from kernelmill.lower.driver.program import lower_graph
from kernelmill.lower.schedule.search import ScheduleSearch
from kernelmill.passes import DEFAULT, Pass, run_pipeline
from kernelmill.passes.identities import RemoveIdentities
from kernelmill.passes.integer_products import AllowProducts
from kernelmill.passes.quantize import Quantize
from kernelmill.plan.verifier import verify_plan
from kernelmill.runtime.executor import executor
from kernelmill.runtime.program import Program
from kernelmill.store.entry import entry_name
from kernelmill.store.store import Store, open_store

_FORMATS = {"txt": print_graph, "pbtxt": to_pbtxt, "py": to_python}
_numbers = itertools.count()


class GraphDumper:
    """A writer of one program's graphs, with the same number, process and time in all names."""

    def __init__(self, config: CompilerConfig) -> None:
        option = config.debug.graph_dump
        self._format = option.type
        self._folder = Path(option.path or ".")
        self._suffix = (
            f"{next(_numbers)}_rank_{_rank()}_pid_{os.getpid()}_ts_{time.time_ns() // 1000}"
        )

    def write(self, stage: str, graph: Graph) -> None:
        """Write `dynamo_{stage}_graph_{id}_rank_{r}_pid_{p}_ts_{t}.{type}`, if a type is set."""
        if self._format is None:
            return
        text = _FORMATS[self._format](graph)
        name = f"dynamo_{stage}_graph_{self._suffix}.{self._format}"
        with file_errors(str(self._folder)):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_text(text)


def _rank() -> int:
    """Return the rank in torch.distributed if initialised, else that from the launcher."""
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return knobs.RANK.get()


_log = get_logger("compiler")


Optimised = tuple[Graph, GraphReport]
Served = Program | CapturedProgram | EagerProgram
"""Programs for a graph's calls."""


def compile_graph(graph: Graph, config: CompilerConfig) -> Compiled[Served]:
    """Compile a graph to a program, returned with its lowered form and the report of the compile.

    Raises UnsupportedError when a node has no lowering, VerificationError when a stage broke the
    program (a fault of kernelmill), StoreError when the kernel folder cannot be trusted,
    ConfigError for a target that this machine cannot run.
    """
    return Compiler(config).compile(graph)


@dataclass(frozen=True)
class Compiler:
    """A compiler with one set of options. All methods raise the errors of `compile_graph`.

    on_compiled  receives each program as it is made, also those made at later calls: captures of
                 other sizes, gears
    compare      reports name the stored kernel nearest to each new one, which takes time
    to_run       False: programs are not called here, and may be for an ISA that this machine lacks
    lower_only   nothing is compiled, for whatever target: ATen runs the programs
    """

    config: CompilerConfig
    on_compiled: OnCompiled | None = None
    compare: bool = False
    to_run: bool = True
    lower_only: bool = False
    _bodies: dict[str, Compiled[Served]] = field(default_factory=dict[str, Compiled[Served]])

    def compile(self, graph: Graph) -> Compiled[Served]:
        """Return the program of a graph."""
        (compiled,) = self.compile_all([graph])
        return compiled

    @collection_paused()
    def compile_all(self, graphs: Sequence[Graph]) -> Sequence[Compiled[Served]]:
        """Return a program for each graph; they share the memory of their calls. All kernels are
        compiled together, in parallel."""
        store, machine = self._store_and_machine()
        optimised = (optimise(graph, self.config) for graph in graphs)
        if self.config.mode != REDUCE_OVERHEAD:
            return self._compiled(optimised, graphs, store, machine)
        self._compile_bodies(graphs)
        operators = self._operators(store, machine)
        if self.lower_only:
            return self._lowered((operators.lowered(*one) for one in optimised), machine)
        return [self._captures(operators, *one).program() for one in optimised]

    def compile_at_sizes(
        self, graph: Graph, gears: Sequence[GearSizes]
    ) -> Sequence[Compiled[Served]]:
        """Return a program for each gear of a graph over symbols. Gears share the kernels of the
        program for all sizes where the loss is small (linking.py)."""
        if self._separately:
            return self.compile_all([at_sizes(graph, one.values, one.name) for one in gears])
        store, machine = self._store_and_machine()
        sharing = self._sharing(graph, gears, machine)
        programs = (
            sharing[gear.name]
            if gear.name in sharing
            else optimise(at_sizes(graph, gear.values, gear.name), self.config)
            for gear in gears
        )
        return self._compiled(programs, [graph], store, machine)

    def compile_in_batches(
        self, graph: Graph, gears: Sequence[GearSizes]
    ) -> Iterator[tuple[Sequence[GearSizes], Sequence[Compiled[Served]]]]:
        """Yield the programs of `compile_at_sizes` in parts: gears that share kernels first."""
        sharing: Mapping[str, LoweredProgram] = {}
        if not self._separately:
            store, machine = self._store_and_machine()
            sharing = self._sharing(graph, gears, machine)
            if sharing:
                together = [gear for gear in gears if gear.name in sharing]
                drafts = [sharing[gear.name] for gear in together]
                yield together, self._compiled(drafts, [graph], store, machine)
        for gear in gears:
            if gear.name not in sharing:
                yield [gear], self.compile_at_sizes(graph, [gear])

    def recapture(self, program: Program, graph: Graph) -> Program | CapturedProgram:
        """Return the program for calls in mode reduce-overhead, from a loaded program for all
        sizes. `graph` is the one that it was lowered from."""
        store, machine = self._store_and_machine()
        self._compile_bodies([graph])
        report = GraphReport(graph.name, nodes_before=len(graph.nodes))
        return self._captures(self._operators(store, machine), graph, report).around(program)

    def _compile_bodies(self, graphs: Iterable[Graph]) -> None:
        new = self._new_bodies(graphs)
        if new:
            made = self.compile_all(new)
            self._bodies.update({each.draft.graph.name: each for each in made})

    def _new_bodies(self, graphs: Iterable[Graph]) -> list[Graph]:
        """Return the bodies of higher-order operators in these graphs that are not compiled yet,
        equal ones once, each after its own bodies."""
        found: dict[str, Graph] = {}
        for graph in graphs:
            for name, body in graph.body_graphs().items():
                if name not in self._bodies and name not in found:
                    found |= {inner.name: inner for inner in self._new_bodies([body])}
                    found[name] = body
        return list(found.values())

    @property
    def _separately(self) -> bool:
        """True if each gear is compiled as a graph of its own."""
        return self.config.mode == REDUCE_OVERHEAD or self.config.aoe_config.aoe_mode is not None

    def _store_and_machine(self) -> tuple[Store, Machine]:
        config = self.config
        target_isa(config.target, self.to_run and not self.lower_only)
        store = open_store(config.experimental_config.kernel_meta_dir, config.on_untrusted)
        measure = config.aoe_config.aoe_mode is not None
        return store, machine_for(store, config.target, measure=measure)

    def _sharing(
        self, graph: Graph, gears: Sequence[GearSizes], machine: Machine
    ) -> dict[str, LoweredProgram]:
        separate = not self.config.experimental_config.pattern_fusion_pass
        ranges = _automatic_ranges(self.config)

        def lower(symbolic: Graph, announce: Announce | None) -> Lowered:
            return lower_graph(symbolic, machine, separate, announce=announce)

        found = sharing_programs(*optimise(graph, self.config, dump=False), gears, lower)
        return {name: replace(draft, automatic_ranges=ranges) for name, draft in found.items()}

    def _compiled(
        self, programs: Iterable[Optimised | LoweredProgram], graphs: Iterable[Graph],
        store: Store, machine: Machine,
    ) -> Sequence[Compiled[Served]]:  # fmt: skip
        """Compile programs from these graphs together with their bodies."""
        config, bodies = self.config, self._new_bodies(graphs)
        if bodies:
            programs = chain((optimise(body, config) for body in bodies), programs)
        inner = len(bodies)
        if self.lower_only:
            return self._lowered(_drafts(programs, config, store, machine), machine, inner)
        with quick_switches(), KernelBuilds(store, machine.isa) as builds:
            builds.beside(executor)  # there is no kernel yet
            drafts = _drafts(programs, config, store, machine, partial(_begin, builds))
            linked = link_all(drafts, store, machine, builds, self.compare, self._bodies, inner)
        fused = config.experimental_config.pattern_fusion_pass
        for each in linked:
            each.program.check_weights(config.check_weights)
            note(each.program, each.draft.source, fused=fused)
        self._bodies.update({each.draft.graph.name: each for each in linked[:inner]})
        return self._announced(linked)[inner:]

    def _lowered(
        self, drafts: Iterable[LoweredProgram], machine: Machine, inner: int = 0
    ) -> Sequence[Compiled[Served]]:
        """Return the drafts as programs that ATen runs, without the first, `inner` bodies of those
        that follow. VerificationError for an invalid plan."""
        found: list[Compiled[Served]] = []
        for draft in drafts:
            draft = with_super_kernels(draft, machine)
            draft = with_names(draft, _names(draft, machine.isa))
            verify_plan(draft.lowered.plan, "lowering")
            own = with_theirs(self._bodies[name] for name in draft.graph.body_graphs())
            found += self._announced([Compiled(EagerProgram(draft.graph), draft, machine, own)])
            if len(found) <= inner:
                self._bodies[draft.graph.name] = found[-1]
        return found[inner:]

    def _announced(self, made: Sequence[Compiled[Served]]) -> Sequence[Compiled[Served]]:
        if self.on_compiled is not None:
            for compiled in made:
                self.on_compiled(compiled)
        return made

    def _operators(self, store: Store, machine: Machine) -> Operators:
        build, ranges = _static_build(self.config, store, machine), _automatic_ranges(self.config)
        return Operators(
            store, machine, build, ranges, self.on_compiled, self.compare, self._bodies
        )

    def _captures(self, operators: Operators, graph: Graph, report: GraphReport) -> Captures:
        limit = self.config.debug.aclgraph.static_capture_size_limit
        assert limit is not None
        return Captures(operators, graph, report, limit, self.config.check_weights)


def _names(draft: LoweredProgram, isa: Isa) -> dict[str, str]:
    kernels, others = draft.lowered.kernels, draft.others
    return {
        ref.name: entry_name(ref.type, kernel_key(kernels[ref.name], others.get(ref.name, isa)))
        for ref in draft.lowered.plan.kernels
    }


def _drafts(
    programs: Iterable[Optimised | LoweredProgram],
    config: CompilerConfig,
    store: Store,
    machine: Machine,
    begin: Callable[[str, NewKernel], None] | None = None,
) -> Iterator[LoweredProgram]:
    """Yield the graphs lowered, one by one, as the options say, and those already lowered
    unchanged; `begin` receives each kernel as soon as it is made, with the graph's name."""
    separate = not config.experimental_config.pattern_fusion_pass
    automatic = _automatic_ranges(config)
    kernels = KernelCache()
    for one in programs:
        if isinstance(one, LoweredProgram):
            yield one
            continue
        graph, report = one
        tuner = Tuner(store, machine) if config.aoe_config.aoe_mode else None
        drawing = nullcontext() if tuner is None else closing(tuner)
        with drawing, report.stage("lower" if tuner is None else "lower and tune"):
            settle = None if tuner is None else ScheduleSearch(tuner.pick).settle
            shared = None if graph.symbols else kernels
            announce = None if begin is None else partial(begin, graph.name)
            lowered = lower_graph(
                graph, machine, separate, settle=settle, cache=shared, announce=announce
            )
        if tuner is not None:
            report.tuned, report.schedules_measured = tuner.settled, tuner.measured
        yield LoweredProgram(lowered, GraphSource(graph), report, automatic_ranges=automatic)


def _begin(builds: KernelBuilds, graph: str, new: NewKernel) -> None:
    ref = new.ref
    builds.begin(Request(new.kernel, ref.operators, ref.origin, new.shapes, graph, new.text))


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
    """Return the graph after the passes that the options ask for, and the report so far. `dump` is
    False for a graph that no program is made of directly."""
    report = GraphReport(graph.name, nodes_before=len(graph.nodes))
    files = GraphDumper(config) if dump else None
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
    outputs = config.experimental_config.aclgraph.static_kernel_outputs
    return StaticBuild(choices, folder, symbol, sizes, outputs)


def _passes(config: CompilerConfig) -> Sequence[Pass]:
    passes = DEFAULT
    if not config.experimental_config.remove_noop_ops:
        passes = tuple(one for one in DEFAULT if not isinstance(one, RemoveIdentities))
    if config.quantize is not None:
        passes = (*passes, Quantize(config.quantize))
    return passes if config.float32_pieces else (*passes, AllowProducts(0))

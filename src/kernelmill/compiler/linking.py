"""Linking of a lowered program: objects, the callable program, and the report.

Gears share the kernels of the program for all sizes if that costs little. Then passes, fusion,
kernels and LLVM's work are done once, and each gear only has a plan, with its sizes instead of
symbols. The cost model estimates the loss: for each launch that of its template (`Loss`), and a
little for loops with symbolic ends.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Generic, TypeVar

from kernelmill.compiler.objects import (
    KernelBuilds,
    nearest,
    obtain_dims,
    obtain_drivers,
    requests_of,
)
from kernelmill.compiler.report import GraphReport, KernelReport
from kernelmill.config.super_kernel_marks import RangeOptions
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import evaluate
from kernelmill.core.log import get_logger, write_stage
from kernelmill.core.target.isa import Isa
from kernelmill.core.target.machine import Machine
from kernelmill.graph.builder import GraphSource
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph, Held
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.driver.at_sizes import lowered_at_sizes
from kernelmill.lower.driver.lowered import Announce, KernelFacts, Lowered, NewKernel
from kernelmill.lower.schedule.text import print_schedule
from kernelmill.plan.arena import lifetimes, peak_bytes
from kernelmill.plan.ir import AtenCall, Launch
from kernelmill.plan.text import print_plan
from kernelmill.plan.verifier import verify_plan
from kernelmill.runtime.calls.engine import ProgramBody
from kernelmill.runtime.counters import SYMBOLIC_NS
from kernelmill.runtime.memory.dims import dims_needed
from kernelmill.runtime.memory.frames import FramePool
from kernelmill.runtime.program import DIMS_OBJECT, Program, load
from kernelmill.store.entry import Entry
from kernelmill.store.store import Store
from kernelmill.superkernel.launch_fusion import form
from kernelmill.superkernel.side_by_side import run_side_by_side

_log = get_logger("compiler")


@dataclass(frozen=True)
class LoweredProgram:
    """A graph after lowering, with its report so far: everything that needs no objects.

    `others` are the ISAs of kernels that are not for this machine's, by kernel name. With options
    for `automatic_ranges` all launches become super kernels, not only those that the model marks.
    """

    lowered: Lowered
    source: GraphSource
    report: GraphReport
    others: Mapping[str, Isa] = field(default_factory=dict[str, Isa])
    automatic_ranges: RangeOptions | None = None

    @property
    def graph(self) -> Graph:
        """The graph that the program was lowered from."""
        return self.source.graph


AnyProgram = TypeVar("AnyProgram", covariant=True)


@dataclass(frozen=True)
class Compiled(Generic[AnyProgram]):
    """A compiled graph: the program, its draft, and the machine; with the bodies of its
    higher-order operators, which it calls, each after those that it calls."""

    program: AnyProgram
    draft: LoweredProgram
    machine: Machine
    bodies: tuple[Compiled[Any], ...] = ()

    @property
    def lowered(self) -> Lowered:
        """The kernels and the plan."""
        return self.draft.lowered

    @property
    def report(self) -> GraphReport:
        """The report of the compile."""
        return self.draft.report


CompiledBodies = Mapping[str, Compiled[Any]]
"""Compiled bodies by their names."""

NO_BODIES: CompiledBodies = {}

OnCompiled = Callable[[Compiled[Any]], None]
"""Receives each program as soon as it is made."""


def link(
    draft: LoweredProgram,
    store: Store,
    machine: Machine,
    compare: bool = False,
    bodies: CompiledBodies = NO_BODIES,
) -> Compiled[Program]:
    """Return the program of one draft. For `compare` and the errors see `link_all`."""
    with KernelBuilds(store, machine.isa) as builds:
        (compiled,) = link_all([draft], store, machine, builds, compare, bodies)
    return compiled


def link_all(
    drafts: Iterable[LoweredProgram],
    store: Store,
    machine: Machine,
    builds: KernelBuilds,
    compare: bool = False,
    bodies: CompiledBodies = NO_BODIES,
    inner: int = 0,
) -> list[Compiled[Program]]:
    """Return the programs of several drafts, which share the memory of their calls; the reports are
    filled. The first are `inner` bodies of those that follow; `bodies` are their other bodies,
    compiled. With `compare` a report names the stored kernel nearest to each new one.

    While `builds` compiles the kernels of one draft the next is taken from `drafts`: lowering and
    LLVM run in parallel. Raises VerificationError for an invalid kernel, StoreError as the store
    does.
    """
    made: list[LoweredProgram] = []
    for draft in (with_super_kernels(draft, machine) for draft in drafts):
        lowered = draft.lowered
        with draft.report.stage("verify"):
            verify_plan(lowered.plan, "lowering")
        builds.add(requests_of(lowered.plan, lowered.kernels), draft.others)
        made.append(draft)
    with made[-1].report.stage("codegen"):
        obtained = builds.finish()
    pools, known = (FramePool(), FramePool()), dict(bodies)
    programs: list[Compiled[Program]] = []
    for draft, entries in zip(made, obtained, strict=True):
        draft = with_names(draft, {name: entry.name for name, entry in entries.items()})
        own = [known[name] for name in draft.source.general.body_graphs()]
        program = _load(draft, entries, store, machine, pools[len(programs) < inner], own)
        draft.report.isa = str(machine.isa)
        _fill(draft, entries, store if compare else None)
        programs.append(Compiled(program, draft, machine, with_theirs(own)))
        known[draft.graph.name] = programs[-1]
    return programs


def without_bodies(made: Sequence[Compiled[Any]]) -> Sequence[Compiled[Any]]:
    """Return the programs that are no bodies of others among them."""
    bodies = {id(body.draft) for each in made for body in each.bodies}
    return [each for each in made if id(each.draft) not in bodies]


def with_theirs(bodies: Iterable[Compiled[Any]]) -> tuple[Compiled[Any], ...]:
    """Return bodies with the bodies they call, each once and after those that it calls."""
    found = {id(each): each for body in bodies for each in (*body.bodies, body)}
    return tuple(found.values())


def with_super_kernels(draft: LoweredProgram, machine: Machine) -> LoweredProgram:
    """Return the draft with the launches of its ranges as super kernels, and independent ones of
    the others run side by side."""
    lowered = draft.lowered
    with draft.report.stage("super kernels"):
        plan = run_side_by_side(lowered.plan, lowered.kernels, machine)
        formed = form(plan, lowered.kernels, draft.automatic_ranges, machine)
    draft.report.ranges += formed.reports
    name, kernels = draft.report.name, lowered.kernels.values()
    write_stage(name, "plan", lambda: print_plan(formed.plan))
    write_stage(name, "kernels", lambda: "\n".join(map(print_kernel, kernels)))
    return replace(draft, lowered=replace(lowered, plan=formed.plan))


def with_names(draft: LoweredProgram, names: Mapping[str, str]) -> LoweredProgram:
    """Return the draft with the store's names for its kernels."""
    plan = draft.lowered.plan
    kernels = tuple(replace(ref, digest=names[ref.name].rpartition("_")[2]) for ref in plan.kernels)
    return replace(draft, lowered=replace(draft.lowered, plan=replace(plan, kernels=kernels)))


def _load(
    draft: LoweredProgram,
    entries: Mapping[str, Entry],
    store: Store,
    machine: Machine,
    pool: FramePool,
    bodies: Sequence[Compiled[Any]],
) -> Program:
    plan = draft.lowered.plan
    objects = {name: entry.object for name, entry in entries.items()}
    with draft.report.stage("codegen"):
        objects.update(obtain_drivers(plan, store, machine.isa))
    if plan.symbols:
        with draft.report.stage("codegen"):
            dims = obtain_dims(plan.symbols, dims_needed(plan), store, machine.isa)
        objects[DIMS_OBJECT] = dims.object
    with draft.report.stage("link"):
        held = {
            name: body.found
            for name, body in draft.source.general.bodies.items()
            if isinstance(body, Held)
        }
        called = {each.draft.graph.name: ProgramBody(each.program) for each in bodies}
        return load(plan, objects, pool, verified=True, bodies={**held, **called})


def _fill(draft: LoweredProgram, entries: Mapping[str, Entry], store: Store | None) -> None:
    report, lowered = draft.report, draft.lowered
    steps = (*lowered.plan.prepare, *lowered.plan.steps)
    launches = Counter(step.kernel for step in steps if isinstance(step, Launch))
    report.arena_bytes = str(lowered.plan.arena_bytes)
    placed = list(lifetimes(lowered.plan.steps, lowered.plan.buffers).values())
    if all(isinstance(buffer.bytes, int) for buffer in placed):
        report.live_bytes = peak_bytes(placed)
        report.tensor_bytes = peak_bytes([replace(b, first=0, last=0) for b in placed])
    for ref in lowered.plan.kernels:
        entry = entries[ref.name]
        near = nearest(entry, store, ref.type) if store and _is_new(entry) else None
        facts = lowered.facts.get(ref.name) or KernelFacts()
        report.kernels.append(
            KernelReport(
                entry.name, ref.type, ref.operators, ref.origin, entry.source, launches[ref.name],
                () if near is None else near.differences,
                _kind(lowered.kernels[ref.name], entry), lowered.kernels[ref.name].classes,
                facts.template, "" if near is None else near.name, facts.f32_products,
                print_schedule(facts.schedule),
            )
        )  # fmt: skip
    calls = Counter((s.target, s.origin) for s in lowered.plan.steps if isinstance(s, AtenCall))
    for node in draft.source.general.nodes:
        called = str(node.attrs["target"]) if node.op == "aten" else "", node.origin
        if calls[called]:
            calls[called] -= 1
            report.fallbacks.append((called[0], str(node.attrs["reason"]), node.origin))
    stages = ", ".join(f"{name} {spent * 1e3:.0f} ms" for name, spent in report.seconds.items())
    _log.info(
        "%s: %d kernels (%d compiled, %d reused), %d ATen calls in %.1f s: %s",
        report.name, len(report.kernels), report.compiled, report.reused, len(report.fallbacks),
        sum(report.seconds.values()), stages,
    )  # fmt: skip
    for kernel in report.kernels:
        _log.debug("%s: %d x %s, %s", report.name, kernel.launches, kernel.name, kernel.kind)


def _is_new(entry: Entry) -> bool:
    return entry.source == "compiled"


def _kind(kernel: Kernel, entry: Entry) -> str:
    if kernel.dims:
        return "dynamic"
    where = entry.source if entry.source.startswith("package ") else "this run"
    return f"static ({where})"


@dataclass(frozen=True, eq=False)
class EagerProgram:
    """A program that runs a graph operator by operator."""

    graph: Graph

    def call(self, *arguments: Any) -> list[Any]:
        """Return the graph's results, by eager operators."""
        return run_graph(self.graph, arguments)


_MOST_LOST = 0.03
"""Largest loss of time with which a gear shares kernels, relative to kernels of its own."""

_FEWEST = 3
"""Gears that must share kernels for the program for all sizes to pay: its compile takes as long as
one and a half for known sizes."""


@dataclass(frozen=True)
class GearSizes:
    """A gear of a graph: the values of its symbols, and the name of its program."""

    name: str
    values: Mapping[str, int]


Lower = Callable[[Graph, Announce | None], Lowered]


class _OwnKernelsOnly(Exception):
    """A kernel was made for which the cost model has no estimate of the loss by sharing."""


def sharing_programs(
    graph: Graph, report: GraphReport, gears: Sequence[GearSizes], lower: Lower
) -> dict[str, LoweredProgram]:
    """Return the programs, by name, of the gears that share kernels; {} where that does not pay.
    `graph` has been through the passes, with `report`, which becomes that of the first."""
    if len(gears) < _FEWEST or not graph.symbols.keys() <= gears[0].values.keys():
        return {}
    largest = max(gears, key=lambda gear: math.prod(gear.values.values()))

    def known(new: NewKernel) -> None:
        if any(math.isinf(loss(largest.values)) for loss in new.losses):
            raise _OwnKernelsOnly

    try:
        with report.stage("lower"):
            lowered = lower(graph, known)
            sharing = [gear for gear in gears if _lost(lowered, gear.values) <= _MOST_LOST]
    except _OwnKernelsOnly:
        return {}
    if len(sharing) < _FEWEST:
        return {}
    _log.info("%s: %d of %d gears share kernels", graph.name, len(sharing), len(gears))
    return dict(_programs(graph, report, lowered, sharing))


def _programs(
    graph: Graph, report: GraphReport, lowered: Lowered, gears: Sequence[GearSizes]
) -> list[tuple[str, LoweredProgram]]:
    programs: list[tuple[str, LoweredProgram]] = []
    for gear in gears:
        own = report if not programs else GraphReport(gear.name, nodes_before=report.nodes_before)
        own.name, own.nodes_after = gear.name, len(graph.nodes)
        with own.stage("lower"):
            known = lowered_at_sizes(lowered, gear.values, gear.name)
            program = LoweredProgram(known, GraphSource(graph, gear.values, gear.name), own)
        programs.append((gear.name, program))
    return programs


def _lost(lowered: Lowered, sizes: Mapping[str, int]) -> float:
    """Return the part of a call's time that kernels for these sizes alone would save."""
    spent = lost = 0.0
    losses: dict[str, float] = {}
    for step in lowered.plan.steps:
        if not isinstance(step, Launch):
            continue
        work = evaluate(step.work, sizes)
        spent += work
        if not lowered.kernels[step.kernel].dims:
            continue
        if step.kernel not in losses:
            known = lowered.losses.get(step.kernel, ())
            losses[step.kernel] = max((loss(sizes) for loss in known), default=math.inf)
        lost += work * losses[step.kernel] + SYMBOLIC_NS
    return lost / spent if spent else 0.0

"""Kernels shared by gears: those of the program for all sizes, where that costs little.

The passes, the fusion, the kernels and LLVM's work on them are then done once; each gear has only
its own plan, with its sizes in place of symbols. The cost model gives the loss: for each launch the
estimate of its template (`Loss`), and a little for loops with symbolic ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from kernelmill.compiler.linking import LoweredProgram
from kernelmill.compiler.report import CompileReport
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import evaluate
from kernelmill.core.log import get_logger
from kernelmill.graph.ir import Graph
from kernelmill.graph.sizes import GraphSource
from kernelmill.lower.driver.at_sizes import lowered_at_sizes
from kernelmill.lower.driver.lowered import Announce, Lowered, NewKernel
from kernelmill.plan.ir import Launch
from kernelmill.runtime.estimates import SYMBOLIC_NS

_log = get_logger("compiler")

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
    graph: Graph, report: CompileReport, gears: Sequence[GearSizes], lower: Lower
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
    graph: Graph, report: CompileReport, lowered: Lowered, gears: Sequence[GearSizes]
) -> list[tuple[str, LoweredProgram]]:
    programs: list[tuple[str, LoweredProgram]] = []
    for gear in gears:
        own = report if not programs else CompileReport(gear.name, nodes_before=report.nodes_before)
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

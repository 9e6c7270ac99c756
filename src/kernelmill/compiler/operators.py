"""Programs that launch one operator after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from kernelmill.compiler.choices import Choices, Library
from kernelmill.compiler.linking import (
    NO_BODIES,
    Compiled,
    CompiledBodies,
    LoweredProgram,
    OnCompiled,
    link,
)
from kernelmill.compiler.recording import note, operators_of
from kernelmill.compiler.report import CompileReport
from kernelmill.compiler.static_build import StaticBuild
from kernelmill.config.super_kernel_marks import RangeOptions
from kernelmill.core.target.isa import Isa
from kernelmill.core.target.machine import Machine
from kernelmill.graph.ir import Graph
from kernelmill.graph.printer import print_graph
from kernelmill.graph.sizes import GraphSource
from kernelmill.lower.driver.lowered import Lowered, LoweredOperator
from kernelmill.lower.driver.operators import Extracted, Operator
from kernelmill.lower.driver.placement import Work
from kernelmill.lower.driver.program import extract_operators, lower_operators
from kernelmill.runtime.program import Program
from kernelmill.store.store import Store


class Operators:
    """A compiler of such programs. With `build`, missing static kernels are compiled.

    Static kernels that are installed are used in any case. For `automatic_ranges` see
    `LoweredProgram`, for `on_compiled` and `compare` `Compiler`, for `bodies` `link_all`.
    """

    def __init__(
        self,
        store: Store,
        machine: Machine,
        build: StaticBuild | None = None,
        automatic_ranges: RangeOptions | None = None,
        on_compiled: OnCompiled | None = None,
        compare: bool = False,
        bodies: CompiledBodies = NO_BODIES,
    ) -> None:
        self.store = store
        self.machine = machine
        self.build = build
        self.automatic_ranges = automatic_ranges
        self.on_compiled = on_compiled
        self.compare = compare
        self.bodies = bodies
        self.choices = Choices(store, machine)

    def program(
        self, graph: Graph, report: CompileReport, ahead: Sequence[Graph] = ()
    ) -> Compiled[Program]:
        """Return the program of a graph, with its report filled. Where static kernels are built,
        those of the graphs `ahead` are built with it.

        Raises UnsupportedError for a graph that cannot be lowered.
        """
        with report.stage("lower"):
            extracted = extract_operators(graph, self.machine)
            selection, lowered = self._lower(extracted)
        static = {**selection.static}
        if self.build is not None and static:
            with report.stage("static"):
                found = (operators_of(other, self.machine) for other in ahead)
                for operator in chain.from_iterable(found):
                    static.setdefault(_text(operator), operator)
                self.build.run(graph.name, list(static.values()), lowered.plan)
            with report.stage("lower"):
                selection, lowered = self._lower(extracted)
        draft = LoweredProgram(
            lowered, GraphSource(graph), report, selection.isas, self.automatic_ranges
        )
        compiled = link(draft, self.store, self.machine, self.compare, self.bodies)
        note(compiled.program, draft.source, fused=False)
        if self.on_compiled is not None:
            self.on_compiled(compiled)
        return compiled

    def lowered(self, graph: Graph, report: CompileReport) -> LoweredProgram:
        """Return the draft that `program` would compile, without building static kernels."""
        with report.stage("lower"):
            selection, lowered = self._lower(extract_operators(graph, self.machine))
        return LoweredProgram(
            lowered, GraphSource(graph), report, selection.isas, self.automatic_ranges
        )

    def _lower(self, extracted: Extracted) -> tuple[_Selection, Lowered]:
        selection = _Selection(self, extracted)
        return selection, lower_operators(extracted, selection.chosen, self.machine)


class _Selection:
    """Kernels chosen for the operators of one program: `chosen` for its work. `static` are those of
    known sizes by their text, and `isas` those of kernels that are for another than this
    machine's."""

    def __init__(self, operators: Operators, extracted: Extracted) -> None:
        self.operators = operators
        self.static: dict[str, Operator] = {}
        self.isas: dict[str, Isa] = {}
        self.chosen: dict[Work, LoweredOperator] = {}
        for work, operator in extracted.operators.items():
            chosen = self._choose(operator)
            if chosen is not None:
                self.chosen[work] = chosen

    def _choose(self, operator: Operator) -> LoweredOperator | None:
        choices = self.operators.choices
        if operator.graph is not None:
            self.static.setdefault(_text(operator), operator)
            packaged = choices.packaged(operator)
            if packaged is not None:
                form, choice, kernels = packaged
                return self._from(form, choice.kernel, kernels)
            known = choices.known(operator) if self.operators.build is not None else None
            if known is not None:
                return self._from(operator, known.kernel, choices.library)
        return choices.library.dynamic(operator)

    def _from(self, operator: Operator, kernel: str, kernels: Library) -> LoweredOperator | None:
        if kernel == "static" and operator.graph is not None:
            lowered = kernels.lower(operator.graph)
            chosen = None if lowered is None else LoweredOperator(lowered, {})
        else:
            chosen = kernels.dynamic(operator)
        if chosen is not None and kernels.machine.isa != self.operators.machine.isa:
            self.isas.update(dict.fromkeys(chosen.lowered.kernels, kernels.machine.isa))
        return chosen


def _text(operator: Operator) -> str:
    assert operator.graph is not None
    return print_graph(operator.graph, names=False)

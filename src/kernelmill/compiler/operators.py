"""Programs that launch one operator after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelmill.compiler.choices import Choices
from kernelmill.compiler.linking import Draft, link
from kernelmill.compiler.operators_lowered import Library
from kernelmill.compiler.recording import note, operators_of
from kernelmill.compiler.report import CompileReport
from kernelmill.compiler.static_build import StaticBuild
from kernelmill.config.super_kernel_marks import RangeOptions
from kernelmill.core.isa import Isa
from kernelmill.core.machine import Machine
from kernelmill.graph.ir import Graph
from kernelmill.graph.printer import print_graph
from kernelmill.lower.driver.operators import Operator
from kernelmill.lower.driver.program import Chosen, lower_graph
from kernelmill.runtime.program import Program
from kernelmill.store.store import Store


class Operators:
    """Makes such programs. With `build`, static kernels are compiled for what has none yet.

    Static kernels that are installed are used in any case. For `automatic_ranges` see `Draft`.
    """

    def __init__(
        self,
        store: Store,
        machine: Machine,
        build: StaticBuild | None = None,
        automatic_ranges: RangeOptions | None = None,
    ) -> None:
        self.store = store
        self.machine = machine
        self.build = build
        self.automatic_ranges = automatic_ranges
        self.choices = Choices(store, machine)

    def program(self, graph: Graph, report: CompileReport, ahead: Sequence[Graph] = ()) -> Program:
        """The program of a graph, published in the report. Where static kernels are built, those
        of the graphs `ahead` are built with it.

        Raises UnsupportedError for a graph that cannot be lowered.
        """
        selection = _Selection(self)
        with report.stage("lower"):
            lowered = lower_graph(graph, self.machine, True, selection.choose)
        if self.build is not None and selection.found:
            with report.stage("static"):
                for other in ahead:
                    selection.note(operators_of(other))
                self.build.run(graph.name, list(selection.found.values()), lowered.plan)
            selection = _Selection(self)
            with report.stage("lower"):
                lowered = lower_graph(graph, self.machine, True, selection.choose)
        draft = Draft(lowered, graph, report, selection.isas, self.automatic_ranges)
        program = link(draft, self.store, self.machine)
        note(program, graph, fused=False)
        return program


class _Selection:
    """Chooses kernels for one graph; `found` are its operators of known sizes by their text, and
    `isas` those of kernels that are for another than this machine's."""

    def __init__(self, operators: Operators) -> None:
        self.operators = operators
        self.found: dict[str, Operator] = {}
        self.isas: dict[str, Isa] = {}

    def note(self, operators: Iterable[Operator]) -> None:
        """Count these to what is found; their sizes must be numbers."""
        for operator in operators:
            assert operator.graph is not None
            self.found.setdefault(print_graph(operator.graph, names=False), operator)

    def choose(self, operator: Operator) -> Chosen | None:
        choices = self.operators.choices
        if operator.graph is not None:
            self.note([operator])
            packaged = choices.packaged(operator)
            if packaged is not None:
                form, choice, kernels = packaged
                return self._from(form, choice.kernel, kernels)
            known = choices.known(operator) if self.operators.build is not None else None
            if known is not None:
                return self._from(operator, known.kernel, choices.library)
        return choices.library.dynamic(operator)

    def _from(self, operator: Operator, kernel: str, kernels: Library) -> Chosen | None:
        if kernel == "static" and operator.graph is not None:
            lowered = kernels.lower(operator.graph)
            chosen = None if lowered is None else Chosen(lowered, {})
        else:
            chosen = kernels.dynamic(operator)
        if chosen is not None and kernels.machine.isa != self.operators.machine.isa:
            self.isas.update(dict.fromkeys(chosen.lowered.kernels, kernels.machine.isa))
        return chosen

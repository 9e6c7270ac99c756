"""Mode reduce-overhead: programs of dynamic-shape kernels, captured for each set of sizes.

A capture is a plan without symbols: every size and every place in the arena is a number, and a call
is one native replay of its launches. A graph without symbols is one capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from kernelmill.compiler.choices import Choices, Library
from kernelmill.compiler.linking import (
    NO_BODIES,
    Compiled,
    CompiledBodies,
    LoweredProgram,
    OnCompiled,
    link,
)
from kernelmill.compiler.report import GraphReport
from kernelmill.compiler.static_build import StaticBuild, note, operators_of
from kernelmill.config.compiler_config import CheckWeights
from kernelmill.config.super_kernel_marks import RangeOptions
from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.dim import bounds
from kernelmill.core.errors import InputError, UnsupportedError
from kernelmill.core.log import get_logger
from kernelmill.core.target.isa import Isa
from kernelmill.core.target.machine import Machine
from kernelmill.graph.builder import GraphSource, at_sizes
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import print_graph
from kernelmill.lower.driver.lowered import Lowered, LoweredOperator
from kernelmill.lower.driver.operators import Extracted, Operator
from kernelmill.lower.driver.placement import Work
from kernelmill.lower.driver.program import extract_operators, lower_operators
from kernelmill.plan.ir import SymbolInput
from kernelmill.runtime.calls.caller import ProgramResult
from kernelmill.runtime.counters import Count, summed
from kernelmill.runtime.gears.padded_calls import GearedProgram
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
        self, graph: Graph, report: GraphReport, ahead: Sequence[Graph] = ()
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

    def lowered(self, graph: Graph, report: GraphReport) -> LoweredProgram:
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


_log = get_logger("compiler")


class Captures:
    """Captures of one graph, at most `limit`: the oldest is dropped for a new one."""

    def __init__(
        self,
        operators: Operators,
        graph: Graph,
        report: GraphReport,
        limit: int,
        check_weights: CheckWeights = "auto",
    ) -> None:
        self.operators = operators
        self.graph = graph
        self.report = report
        self.limit = limit
        self.check_weights: CheckWeights = check_weights
        self._first = True

    def program(self) -> Compiled[Program | CapturedProgram]:
        """Return the program for the graph's calls. Raises UnsupportedError when lowering fails."""
        made = self.operators.program(self.graph, self.report)
        return Compiled(self.around(made.program), made.draft, made.machine, made.bodies)

    def around(self, program: Program) -> Program | CapturedProgram:
        """Return the program for the graph's calls, given the one for all sizes."""
        program.check_weights(self.check_weights)
        return CapturedProgram(program, self) if program.engine.sources else program

    def capture(self, values: dict[str, int]) -> Program:
        """Return the program for these values of the graph's symbols."""
        sizes = ", ".join(f"{name}={value}" for name, value in values.items())
        report = GraphReport(f"{self.graph.name} at {sizes}", nodes_before=len(self.graph.nodes))
        graph = at_sizes(self.graph, values)
        report.nodes_after = len(graph.nodes)
        program = self.operators.program(graph, report, list(self._ahead(values))).program
        program.check_weights(self.check_weights)
        return program

    def _ahead(self, values: dict[str, int]) -> Iterator[Graph]:
        """Yield the graph at the other sizes with static kernels, at the first capture only."""
        build, first, self._first = self.operators.build, self._first, False
        if build is None or not build.sizes or not first:
            return
        if build.symbol >= len(values):
            self._left_out(f"there are {len(values)} symbols ({', '.join(values)})", "sym_index")
            return
        name = list(values)[build.symbol]
        symbol = self.graph.symbols[name]
        high = bounds(symbol.hi)[1] if symbol.hi is not None else None
        for size in sorted(set(build.sizes)):
            if size < symbol.lo or (high is not None and size > high):
                limits = f"{symbol.lo} to {'any' if high is None else high}"
                reason = f"{name} cannot be {size}: its sizes are {limits}"
                self._left_out(reason, "sym_value_range")
            elif size != values[name]:
                yield at_sizes(self.graph, {**values, name: size})

    def _left_out(self, reason: str, option: str) -> None:
        option = f"config.experimental_config.aclgraph._aclnn_static_shape_kernel_{option}"
        message = "%s: no static kernels ahead of calls: %s (%s)"
        _log.warning(message, self.graph.name, reason, option)


class CapturedProgram:
    """A program that runs the capture of a call's sizes; the first call of each set makes it."""

    def __init__(self, program: Program, captures: Captures) -> None:
        self.plan = program.plan
        self._program, self._captures = program, captures
        sources = program.engine.sources
        names = [source.name for source in sources]
        kept = tuple(
            i
            for i, entry in enumerate(self.plan.inputs)
            if not isinstance(entry, SymbolInput) or entry.symbol not in names
        )
        self._captured = GearedProgram(sources, tuple(names), {}, kept, len(self.plan.inputs))
        self._capturing = RenewedLock()
        self._warned = False
        self.call = self._captured.caller(self._without_capture)

    def __call__(self, *args: Any) -> list[ProgramResult]:
        """Run the program as `Program` does, and with its errors."""
        return self.call(*args)

    @property
    def captures(self) -> tuple[tuple[int, ...], ...]:
        """The sets of sizes that are captured, oldest first, in the order of the plan's symbols."""
        return tuple(self._captured.table)

    def report(self) -> dict[str, int]:
        """Return sums of the counters in `Program.report` over all captures, and their number."""
        return summed(self.counts())

    def counts(self) -> Iterator[Count]:
        """Yield the numbers of `report` with their owners."""
        programs = dict.fromkeys((self._program, *self._captured.table.values()))
        for program in programs:
            if isinstance(program, Program):
                yield from program.counts()
        yield "captures", self, len(self._captured.table)

    def _without_capture(self, args: tuple[Any, ...], error: Exception | None) -> Any:
        if len(args) != len(self.plan.inputs):
            return self._program.call(*args)  # raises the error
        if isinstance(error, InputError):
            raise error
        engine, captured = self._program.engine, self._captured
        found = engine.sizes_of(args).symbols
        values = {name: found[name] for name in captured.symbols}
        key = tuple(values.values())
        with self._capturing.lock:
            if key not in captured.table:
                self._make_room()
                self._capture(key, values)
        program = captured.table.get(key, self._program)
        return program.call(*(args if program is self._program else captured.pick(args)))

    def _make_room(self) -> None:
        while len(self.captures) >= self._captures.limit:
            oldest = self.captures[0]
            self._captured.remove(oldest)
            level = _log.info if self._warned else _log.warning
            level(
                "%s: more than %d sets of sizes; the capture of %s is dropped "
                "(config.debug.aclgraph.static_capture_size_limit)",
                self.plan.name, self._captures.limit, oldest,
            )  # fmt: skip
            self._warned = True

    def _capture(self, key: tuple[int, ...], values: dict[str, int]) -> None:
        try:
            self._captured.add(key, self._captures.capture(values))
        except UnsupportedError as error:
            _log.info("%s: no capture of %s: %s", self.plan.name, key, error)
            self._captured.table[key] = self._program  # which takes all arguments: no call finds it

"""One trace of a whole function, kept: what is needed to run it in another process.

The function is run once through torch.compile. What Dynamo knows then (where inputs come from, what
it guards, which code it went through) and what the compiler made become an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from kernelmill.artifact.code import modules_of, names_in, uses_of
from kernelmill.artifact.container import Artifact
from kernelmill.artifact.fingerprint import name_of
from kernelmill.artifact.guards import found_now
from kernelmill.artifact.manifest import (
    CallSpec,
    Condition,
    Gears,
    Guard,
    Guards,
    Limit,
    Manifest,
    Parameter,
    Source,
    read_manifest,
)
from kernelmill.artifact.objects import artifact_of
from kernelmill.artifact.paths import Path, Roots, follow, name_of_argument
from kernelmill.artifact.results import Shaper
from kernelmill.artifact.settings import state
from kernelmill.artifact.sizes import where_of
from kernelmill.artifact.target import Target
from kernelmill.artifact.tensors import WeightLayout, held_constants
from kernelmill.artifact.versions import packages_of
from kernelmill.backend.capture import Traced, compile_capture
from kernelmill.backend.entry import NAME
from kernelmill.backend.gear_calls import GearedCalls
from kernelmill.backend.guards import reads_of
from kernelmill.backend.report import Capture
from kernelmill.backend.sources import SourceReader
from kernelmill.backend.tested_torch import TESTED, is_tested
from kernelmill.compiler.linking import LoweredProgram, collect_linked
from kernelmill.config import CompilerConfig
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.isa import target_isa
from kernelmill.frontend import conditions_from, conditions_of
from kernelmill.plan.ir import Plan
from kernelmill.plan.padding import Padding
from kernelmill.runtime.dims import late_symbols, symbol_sources
from kernelmill.runtime.program import Program
from kernelmill.torch_internals import dynamo
from kernelmill.torch_internals.autograd import output_kinds

Decompositions = Mapping[Any, Callable[..., Any]]


@dataclass(frozen=True)
class Recording:
    """What a recorded call returned, and its artifact, or why it has none."""

    returned: Any
    artifact: Artifact | None
    reason: str = ""
    compiled: Callable[..., Any] | None = None


def record(
    target: Target,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    config: CompilerConfig,
    dynamic: bool,
    decompositions: Decompositions,
    ingredients: Mapping[str, str],
) -> Recording:
    """Trace, compile and run `target.function` once, without gradients.

    Raises what tracing raises for a function that is no whole graph. `Recording.compiled` is what
    torch.compile made: it serves calls in this process where there is no entry.
    """
    values = target.values(args, kwargs)
    arguments = dict(zip(target.signature.parameters, values, strict=True))
    roots = Roots(target.owner, arguments, target.free)
    trace = _Trace(config, decompositions, target, roots)
    compiled = torch.compile(target.function, backend=trace, fullgraph=True, dynamic=dynamic)
    # Floats are part of the program, not tensors made from them at each call.
    with torch.no_grad(), dynamo.recording():
        returned = compiled(*args, **kwargs)
    artifact, reason = None, ""
    try:
        artifact = _Writer(target, trace, roots, returned, ingredients).artifact()
    except UnsupportedError as error:
        reason = str(error)
    plain = trace.plain(returned)
    trace.forget()
    return Recording(plain, artifact, reason, compiled)


def _unknown() -> str:
    """Why no trace can be kept with this torch; "" where it can."""
    if not is_tested():
        return (
            f"what torch {torch.__version__} guards is not known: these versions have been "
            f"tested: {', '.join(sorted(TESTED))}"
        )
    missing = dynamo.missing_for_records()
    return f"torch {torch.__version__} does not show {missing}" if missing else ""


class _Integer(int):
    """An integer that is a result of the program, told from others of the same value."""


class _Trace:
    """A backend that remembers its one graph."""

    def __init__(
        self, config: CompilerConfig, decompositions: Decompositions, target: Target, roots: Roots
    ) -> None:
        self.config, self.decompositions = config, decompositions
        self.__name__ = NAME  # see Backend
        self.target, self.roots = target, roots
        self.traced: list[Traced] = []
        self.captures: list[Capture] = []
        self.drafts: list[LoweredProgram] = []
        self.begun = False
        self.output: Any = None
        self.guards: list[Any] = []
        self.sources: list[Any] = []
        self.results: list[Any] = []
        self.globals = ""
        self.changed: list[_Change] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        tx = dynamo.current_trace()
        if self.begun or _unknown():  # traced anew, by the function that serves in this process
            return compile_capture(
                gm, example_inputs, self.config, self.decompositions, self.captures.append
            )
        self.begun, self.output = True, tx.output
        self.globals = str(tx.f_globals.get("__name__", ""))
        placeholders = gm.graph.find_nodes(op="placeholder")
        self.sources = [dynamo.source_of(node) for node in placeholders]
        reader = self.reader()
        self.changed = _side_effects(
            tx.output.side_effects, lambda source: follow(reader.path(source), self.roots)
        )
        with collect_linked() as linked:
            call = compile_capture(
                gm, example_inputs, self.config, self.decompositions,
                self.captures.append, self.traced.append,
            )  # fmt: skip
        self.drafts = [each.draft for each in linked]
        self.guards = list(tx.output.guards)  # Dynamo empties its own set when it has made code

        def run(*args: Any) -> Any:
            results = list(call(*args))
            if self.output is not None and not self.results:  # of the call that is recorded
                results = [_Integer(r) if type(r) is int else r for r in results]
                self.results = results
            return results

        return run

    def forget(self) -> None:
        """Let go of what was remembered: Dynamo keeps this, and what a trace holds has references
        to parameters, which `torch.utils.swap_tensors` refuses."""
        self.output, self.roots, self.results = None, Roots(None, {}, {}), []
        for found in (self.traced, self.drafts, self.guards, self.sources, self.changed):
            found.clear()

    def reader(self) -> SourceReader:
        """Reads the sources of this trace."""
        parameters = frozenset(self.target.signature.parameters)
        code = self.target.function.__code__
        own = code.co_varnames[0] if self.target.owner is not None else ""
        space = self.output.global_scope
        installed = {name: space.get(name) for name in self.output.installed_globals}
        return SourceReader(own, parameters, self.globals, self.output.import_sources, installed)

    def plain(self, returned: Any) -> Any:
        """What was returned, without our mark on integers."""
        marked = any(isinstance(result, _Integer) for result in self.results)
        return _unmarked(returned) if marked else returned


def _unmarked(value: Any) -> Any:
    if isinstance(value, _Integer):
        return int(value)
    if isinstance(value, dict):
        for key in list(value):
            value[key] = _unmarked(value[key])
        return value
    if type(value) in (list, tuple):
        return type(value)(_unmarked(part) for part in value)
    if isinstance(value, tuple):
        return type(value)(*[_unmarked(part) for part in value])
    return value


@dataclass(frozen=True)
class _Change:
    """Something besides tensors that traced code changes: attributes, which have the values
    `before` the call, or (None) the contents of a container."""

    source: Any
    before: Mapping[str, Any] | None


_NOTHING = object()


def _side_effects(effects: Any, find: Callable[[Any], Any]) -> list[_Change]:
    found: list[_Change] = []
    existing = dynamo.mutation_classes.require()
    for var in effects.id_to_variable.values():
        if isinstance(var.mutation_type, existing) and effects.is_modified(var):
            names = effects.store_attr_mutations.get(var)
            before = None
            if names and var.source is not None:
                value = find(var.source)
                before = {str(name): getattr(value, name, _NOTHING) for name in names}
            found.append(_Change(var.source, before))
    return found


@dataclass
class _Writer:
    """Makes the artifact of a trace that has run. UnsupportedError says why there can be none."""

    target: Target
    trace: _Trace
    roots: Roots
    returned: Any
    ingredients: Mapping[str, str]
    exact: dict[str, int] = field(default_factory=dict[str, int])

    def artifact(self) -> Artifact:
        trace = self.trace
        if unknown := _unknown():
            raise UnsupportedError(unknown)
        if trace.output is None:
            raise UnsupportedError("it computes nothing with tensors")
        traced, isa = self._whole(), target_isa(trace.config.target)
        codes = list(trace.output.tracing_context.traced_code)
        names = names_in(codes)
        reader = self.trace.reader()
        sources = self._inputs(reader)
        held = held_constants(traced.imported.constants)
        layout = WeightLayout(held)
        reads = (
            *reads_of(trace.guards, reader, self.roots, names),
            *self._restored(),
            *self._constants(sources),
        )
        result = self._result(sources, traced)
        spec = CallSpec(
            name_of(self.target.function),
            tuple(map(Parameter, self.target.signature.parameters)),
            tuple(read for read in reads if read.of_argument),
            (*sources, *[Source((("tensor", n),)) for n in range(len(held))]),
            result,
            *self._allowed_sizes(sources),
        )
        guards = Guards(
            tuple(read for read in reads if not read.of_argument),
            uses_of(codes),
            tuple(sorted(names)),
            state(),
            packages_of(modules_of(codes)),
        )
        manifest = Manifest(spec, guards, self._gears, layout.weights, ingredients=self.ingredients)
        return artifact_of(
            read_manifest(manifest.text()), trace.drafts, isa,
            tuple(each.tensor for each in held), {"weights": layout.pieces},
        )  # fmt: skip

    def _whole(self) -> Traced:
        trace = self.trace
        if changed := self._lasting_changes():
            raise UnsupportedError(f"it changes {', '.join(changed)} besides tensors")
        refused = [capture.refused for capture in trace.captures if capture.refused]
        if refused or len(trace.traced) != 1:
            raise UnsupportedError(refused[0] if refused else "it is traced in several graphs")
        (traced,) = trace.traced
        if traced.kind != "inference":
            raise UnsupportedError("it needs a backward pass")
        if not traced.whole:
            raise UnsupportedError(
                "torch does more around its graph than calling it, as with weights that are a "
                "subclass of Tensor (docs/generating.md says how to unwrap torchao's)"
            )
        return traced

    def _lasting_changes(self) -> list[str]:
        """What the code has changed and not set back at its end."""
        found: list[str] = []
        for change in self.trace.changed:
            name = "something" if change.source is None else change.source.name
            if change.before is None:
                found.append(name)
                continue
            value = follow(self.trace.reader().path(change.source), self.roots)
            found += [
                f"{name}.{attribute}"
                for attribute, before in change.before.items()
                if getattr(value, attribute, _NOTHING) is not before
            ]
        return found

    def _restored(self) -> list[Guard]:
        """What it sets back has to be the same to begin with."""
        reads: list[Guard] = []
        for change in self.trace.changed:
            path = self.trace.reader().path(change.source)
            for name in change.before or ():
                reads.append(self._value((*path, ("attribute", name))))
        return reads

    def _value(self, path: Path) -> Guard:
        return Guard("value", path, found_now(Guard("value", path), self.roots))

    def _inputs(self, reader: SourceReader) -> list[Source]:
        found: list[Source] = []
        kinds: Any = dynamo.source_classes.require()
        for source in self.trace.sources:
            if isinstance(source, kinds.TensorPropertySource):
                if source.idx is None or source.prop.name != "SIZE":
                    raise UnsupportedError(f"it reads {source.name}")
                found.append(Source(reader.path(source.base), source.idx))
            elif source is None:
                raise UnsupportedError("Dynamo does not say where an input comes from")
            else:
                found.append(Source(reader.path(source)))
        return found

    def _result(self, inputs: Sequence[Source], traced: Traced) -> Any:
        kinds = output_kinds.require()
        if any(info.output_type not in kinds.known for info in traced.metadata.output_info):
            raise UnsupportedError("a result is a view of another")
        plain = [source.path for source in inputs if source.axis < 0]
        tensors = {path: follow(path, self.roots) for path in plain}
        shaper = Shaper(self.trace.results, tensors)
        shape = shaper.describe(self.returned)
        # They may be sizes that Dynamo took from an argument: right for these sizes alone.
        sizes = self._sizes() if shaper.integers else {}
        self.exact = {name: size for name, size in sizes.items() if size in shaper.integers}
        return shape

    def _sizes(self) -> dict[str, int]:
        plan = self._dynamic_plan
        if plan is None:
            raise UnsupportedError("it has gears, and what it returns may be a size of them")
        found: dict[str, int] = {}
        shape_env = self.trace.output.shape_env
        for source in symbol_sources(plan):
            hint = next(v for s, v in shape_env.backed_var_to_val.items() if str(s) == source.name)
            found[source.name] = int(hint)
        return found

    def _allowed_sizes(
        self, inputs: Sequence[Source]
    ) -> tuple[tuple[Limit, ...], tuple[Condition, ...]]:
        """What the program asks of sizes besides what its plans say."""
        geared, plan = self.trace.traced[0].geared, self._dynamic_plan
        if geared is not None and geared.padded is not None:
            return self._sizes_to_pad(geared, geared.padded.padding, inputs)
        if plan is None:  # each gear has its sizes in its plan
            return (), ()
        known = frozenset(symbol.name for symbol in plan.symbols) - late_symbols(plan)
        conditions: tuple[Condition, ...] = ()
        try:
            conditions = conditions_of(self.trace.output.shape_env, known)
        except UnsupportedError:
            self.exact = self._sizes()
        exact = [(s, self.exact[s.name]) for s in plan.symbols if s.name in self.exact]
        limits = (Limit(symbol.name, n, n, where_of(plan, symbol)) for symbol, n in exact)
        return tuple(limits), conditions

    def _sizes_to_pad(
        self, geared: GearedCalls, padding: Padding, inputs: Sequence[Source]
    ) -> tuple[tuple[Limit, ...], tuple[Condition, ...]]:
        """What the trace takes for granted of sizes that are padded to a gear."""
        guards, program = geared.gears.guards, geared.program
        known = frozenset({*dict(padding.fixed), *program.symbols})
        facts = [e for e, _ in guards.facts if {str(s) for s in e.free_symbols} <= known]
        limits: list[Limit] = []
        for symbol, source in zip(program.symbols, program.sources, strict=True):
            ends, found = guards.ranges.get(symbol), inputs[source.argument]
            if ends is not None:
                axis = found.axis if source.axis < 0 else source.axis
                where = f"dim {axis} of argument {name_of_argument(found.path)!r}"
                limits.append(Limit(symbol, _whole(ends.lower) or 0, _whole(ends.upper), where))
        return tuple(limits), conditions_from(facts, self.trace.output.shape_env, known)

    def _constants(self, inputs: Sequence[Source]) -> list[Guard]:
        """Arguments that are data and no input: the program is for these values."""
        taken = {source.path for source in inputs}
        paths = {(("argument", name),): value for name, value in self.roots.arguments.items()}
        data = (bool, int, float, str, type(None))
        return [self._value(p) for p, v in paths.items() if isinstance(v, data) and p not in taken]

    @cached_property
    def _dynamic_plan(self) -> Plan | None:
        """The plan that calls of any size reach: the only one, or that beside the gears. Where
        calls are padded, that looks at their sizes."""
        plan, gears = self.trace.drafts[0].lowered.plan, self._gears
        if gears is None:
            return plan
        return plan if gears.otherwise == 0 and gears.padding is None else None

    @cached_property
    def _gears(self) -> Gears | None:
        geared = self.trace.traced[0].geared
        if geared is None:
            return None
        plans = [id(draft.lowered.plan) for draft in self.trace.drafts]
        numbers = {
            sizes: plans.index(id(program.plan))
            for sizes, program in geared.program.table.items()
            if isinstance(program, Program)
        }
        otherwise = 0 if 0 not in numbers.values() else -1
        program = geared.program
        sources = tuple((source.argument, source.axis) for source in program.sources)
        return Gears(
            sources, program.symbols, tuple(numbers.items()), program.arguments, program.count,
            otherwise, None if geared.padded is None else geared.padded.padding,
        )  # fmt: skip


def _whole(end: Any) -> int | None:
    return int(end) if end.is_Integer else None

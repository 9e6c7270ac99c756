"""One recorded trace of a whole function, with the state needed to run it in another process.

The function runs once through torch.compile. Dynamo's data (sources of inputs, guards, traced code)
and the compiler's programs become an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

import torch

from kernelmill.artifact import bytecode, manifest, paths
from kernelmill.artifact.bind import calls_functions, refuse_gradients
from kernelmill.artifact.bytecode import flags_asked, known_by_version, methods_in, names_in
from kernelmill.artifact.code import modules_of, reached_by_calls, reached_from, uses_of
from kernelmill.artifact.container import Artifact
from kernelmill.artifact.fingerprint import code_digest, name_of
from kernelmill.artifact.guards import ArgumentCode, equal_integers, where_of, with_value
from kernelmill.artifact.manifest import CallSpec, Gears, Guard, Guards, Limit, Manifest, Source
from kernelmill.artifact.owned import Survey
from kernelmill.artifact.paths import CONTEXT, MissingPath, Path, Roots, Tree, find_at, follow
from kernelmill.artifact.program_set import artifact_of
from kernelmill.artifact.results import Shaper
from kernelmill.artifact.settings import state
from kernelmill.artifact.target import Target
from kernelmill.artifact.tensors import held_constants
from kernelmill.artifact.versions import packages_of
from kernelmill.backend import side_effects
from kernelmill.backend.capture import TESTED, Traced, compile_capture, is_tested
from kernelmill.backend.entry import Decompositions
from kernelmill.backend.gear_calls import GearedCalls
from kernelmill.backend.gears import SizeAssumptions
from kernelmill.backend.guards import Layouts, Reads, identities, keys_of_objects, missed, reads_of
from kernelmill.backend.kept_graph import one_graph
from kernelmill.backend.replacements import functions_of
from kernelmill.backend.report import Capture
from kernelmill.backend.runnable import packages_of_composites
from kernelmill.backend.side_effects import CountsUp, MarkedTensor, SideEffects, marked, unmarked
from kernelmill.backend.sources import SourceReader, Wrapped
from kernelmill.compiler.linking import Compiled, without_bodies
from kernelmill.compiler.pipeline import Compiler
from kernelmill.config import CompilerConfig
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.log import get_logger
from kernelmill.core.version import BACKEND_NAME
from kernelmill.frontend.conditions import conditions_from, conditions_of
from kernelmill.plan.ir import Padding
from kernelmill.runtime.memory.dims import given_symbols
from kernelmill.runtime.program import Program
from kernelmill.torch_internals import dynamo, trace_notes
from kernelmill.torch_internals.modules import all_have_hooks, global_hooks

_log = get_logger("backend")
_TENSORS: Path = (("module", "torch.nn"), ("attribute", "Parameter"))
"""The class whose methods are those of all tensors that a program gets."""
_DATA = (bool, int, float, str, type(None))
"""Classes that an entry holds by value."""


@dataclass(frozen=True)
class Recording:
    """The result of a recorded call, and its artifact, or the reason why it has none. `counted` are
    integers that it changes: a trace that has symbols for them may have an artifact."""

    returned: Any
    artifact: Artifact | None
    reason: str
    compiled: Callable[..., Any]
    counted: Sequence[Path] = ()


def record(
    target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, config: CompilerConfig,
    dynamic: bool, decompositions: Decompositions, ingredients: Mapping[str, str],
    gradients: bool = False,
) -> Recording:  # fmt: skip
    """Trace, compile and run `target.function` once, without gradients.

    Raises the error of the trace for a function that is no whole graph; with `gradients`
    GradientError before it runs where an input of the graph requires grad. `Recording.compiled`
    serves calls in this process where there is no entry.
    """
    values = target.values(args, kwargs)
    arguments = dict(zip(target.signature.parameters, values, strict=True))
    if known_by_version(target.code.co_filename):  # Dynamo calls it by a wrapper, see Wrapped
        args, kwargs = target.binder.apart(values) or (args, kwargs)
    roots = Roots(target.owner, arguments, target.cells)
    trace = _Trace(target, roots, config, decompositions, gradients)
    backend = _Backend(trace)
    compiled = torch.compile(target.function, backend=backend, fullgraph=True, dynamic=dynamic)
    # Floats are part of the program, not tensors made from them at each call.
    with torch.no_grad(), dynamo.recording():
        try:
            returned = compiled(*args, **kwargs)
        except side_effects.SharedMemoryWritten as error:
            trace.refused_call = str(error)
            returned = target.function(*args, **kwargs)
        finally:
            backend.trace = None
    artifact, reason, counted = None, "", ()
    try:
        artifact = trace.artifact(returned, ingredients)
    except UnsupportedError as error:
        reason, counted = str(error), error.places if isinstance(error, CountsUp) else ()
    kinds = (side_effects.MarkedInteger, MarkedTensor)
    if any(isinstance(result, kinds) for result in trace.results):
        returned = unmarked(returned)
        trace.unmark()
    return Recording(returned, artifact, reason, _served(compiled, target.function), counted)


def _served(compiled: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the calls of a function not kept: by torch, in eager from its limit of traces on."""
    told = False

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal told
        try:
            return compiled(*args, **kwargs)
        except side_effects.SharedMemoryWritten:
            return function(*args, **kwargs)
        except dynamo.limit_errors():
            if not told:
                told = True
                _log.warning(
                    "%s runs in eager for what it was not traced with yet: torch has traced it as "
                    "often as torch._dynamo.config.recompile_limit says", name_of(function),
                )  # fmt: skip
            return function(*args, **kwargs)

    return call


def _unknown() -> str:
    """Return why no trace can be kept with this torch; "" where it can."""
    if not is_tested():
        return (
            f"what torch {torch.__version__} guards is not known: these versions have been "
            f"tested: {', '.join(sorted(TESTED))}"
        )
    missing = dynamo.missing_for_records()
    return f"torch {torch.__version__} does not show {missing}" if missing else ""


class _Backend:
    """A backend that records the first graph it is given.

    Dynamo keeps it, and a trace has references to parameters, which `torch.utils.swap_tensors`
    refuses: the `trace` is removed when the call has returned.
    """

    def __init__(self, trace: _Trace) -> None:
        self.__name__ = BACKEND_NAME  # see Backend
        self.trace: _Trace | None = trace
        self._config = trace.config
        self._options = trace.decompositions, trace.captures.append

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        trace, made = self.trace, list[Compiled[Any]]()
        compiler = Compiler(self._config, made.append)
        compile = partial(compile_capture, gm, example_inputs, compiler, *self._options)
        if trace is None or trace.output is not None or _unknown():
            # A retrace, by the function that serves in this process.
            call = compile()
            drafts = [each.draft for each in without_bodies(made)]
            return side_effects.with_storages_apart(call, drafts)
        call = trace.compiled(gm, compile, made)

        def run(*args: Any) -> Any:
            recorded = self.trace
            if recorded is not None and recorded.gradients:
                refuse_gradients(("of its graph", value) for value in args)
            results = list(call(*args))
            if recorded is not None and recorded.may_be_kept and not recorded.results:
                scalars = recorded.scalars
                results = [marked(n, r, scalars) for n, r in enumerate(results)]
                recorded.results = results
            return results

        return run


@dataclass(frozen=True)
class _Dependences:
    """The dependences of a trace before its program ran, which may change them.

    guards    of what lies outside of arguments, without settings; and `checks` of arguments
    sources   of the inputs, and the values of those that are no sizes, by their paths
    """

    guards: Guards
    checks: tuple[Guard, ...]
    sources: Sequence[Source]
    values: Mapping[Path, Any]
    side_effects: SideEffects


@dataclass
class _Trace:
    """One graph: Dynamo's data and the compiler's programs. `refused` is the reason why it cannot
    be kept, if known before the program runs; `refused_call` why its call, which shows the returned
    value, has not run it."""

    target: Target
    roots: Roots
    config: CompilerConfig
    decompositions: Decompositions
    gradients: bool = False
    output: Any = None
    refused: str = ""
    refused_call: str = ""
    depends: _Dependences | None = None
    captures: list[Capture] = field(default_factory=list[Capture])
    traced: list[Traced] = field(default_factory=list[Traced])
    made: Sequence[Compiled[Any]] = ()
    results: list[Any] = field(default_factory=list[Any])
    scalars: frozenset[int] = frozenset()

    def compiled(
        self, gm: torch.fx.GraphModule, compile: Callable[..., Callable[..., Any]],
        made: Sequence[Compiled[Any]],
    ) -> Callable[..., Any]:  # fmt: skip
        """Return the result of `compile`, recording all of it; `made` then has the programs."""
        tx = dynamo.current_trace()
        self.output, self.scalars = tx.output, _scalars(gm)
        sources = [dynamo.source_of(node) for node in gm.graph.find_nodes(op="placeholder")]
        call = compile(observe=self.traced.append)
        self.made = without_bodies(made)
        call = side_effects.with_storages_apart(call, [each.draft for each in self.made])
        try:
            self.depends = self._depends(tx, gm, sources, packages_of_composites(gm))
        except (MissingPath, UnsupportedError) as error:
            self.refused = str(error)
        return call

    def _depends(
        self, tx: Any, gm: torch.fx.GraphModule, sources: Sequence[Any], packages: Mapping[str, str]
    ) -> _Dependences:
        """Collect the dependences. UnsupportedError names one that cannot be kept."""
        reader, roots = self._reader(tx), self.roots
        codes = list(self.output.tracing_context.traced_code)
        called = reached_by_calls(gm, names_in(codes))
        own_names = names_in(c for c in codes if bytecode.is_users(c.co_filename))
        replaced = reached_from((*self.decompositions.values(), *functions_of(self.config)))
        effects = SideEffects(self.output, reader, roots, self.target.rest)
        # Dynamo empties its own set of guards when it has made code.
        layouts = Layouts(self.output, sources, methods_in(codes), flags_asked(codes))
        reads = reads_of(self.output.guards, reader, roots, layouts)
        inputs = [_input(source, reader) for source in sources]
        tensors = [each.path for each in inputs if each.axis < 0]
        _refuse_functions(follow(path, roots) for path in tensors)
        compared = bytecode.compared_by_identity(codes)
        if trace_notes.has_hashed_tensors():
            compared |= {()}
        for read in (
            *effects.reads,
            *_returned(tx, reader),
            *missed(trace_notes.caught_errors(), reader),
            *_hooks_of_all(),
            *(Guard("value", path) for path in (_TENSORS, *replaced.data, *called.data)),
            *identities(compared, tensors, reads, roots),
        ):
            reads.add(read)
        whole = bool(own_names & {"__dict__", "vars"})
        for read in keys_of_objects(reads, roots) if whole else ():
            reads.add(read)
        names = names_in((*codes, *called.codes)) | reads.names(each.path for each in inputs)
        code = ArgumentCode(names, whole)
        checks = tuple(dict.fromkeys(with_value(read, roots, code) for read in reads.arguments))
        values = {each.path: follow(each.path, roots) for each in inputs if each.axis < 0}
        owned = self._owned(names, inputs, reads, whole)
        # Code of functions that the graph calls AOTAutograd may have run, unseen by Dynamo.
        uses = uses_of([*codes, *replaced.codes], called.codes)
        packages = {**packages_of(modules_of((*codes, *called.codes))), **packages}
        guards = Guards(
            uses, tuple(sorted(names)), whole, tuple(owned.roots), tuple(owned.lines),
            packages=packages, function=code_digest(self.target.code),
        )  # fmt: skip
        return _Dependences(guards, checks, inputs, values, effects)

    def _owned(
        self, names: frozenset[str], inputs: Sequence[Source], reads: Reads, whole: bool
    ) -> Survey:
        """Return the survey of the owner, and of all other reads outside of arguments."""
        roots = self.roots
        cells = self.target.cells
        outside = [each.path for each in inputs if paths.is_outside(each.path)]
        survey = Survey(names, [follow(path, roots) for path in outside], whole)
        own = [(("self",),)] if self.target.owner is not None else []
        starts = {**dict.fromkeys((*own, *outside), "all"), **reads.outside}
        tree = Tree()
        for path in starts:
            tree.number(path)
        survey.follow(tree, tree.values(roots), starts, cells)
        for root in reads.tensors:
            path, value = root.path, find_at(root.path, roots)
            if isinstance(value, torch.Tensor):
                before = find_at(path[:-1], roots) if path[1:] else cells.get(path[0][-1])
                survey.add_root(root, value, before)
        return survey

    @property
    def may_be_kept(self) -> bool:
        """True while no reason against an entry is known. All objects that the program will put
        integers into are known then."""
        return self.depends is not None and not self.depends.side_effects.refused

    def unmark(self) -> None:
        """Replace marked values that the program has put into objects by plain ones."""
        if self.depends is not None:
            self.depends.side_effects.replace(unmarked)

    def _reader(self, tx: Any) -> SourceReader:
        """Return a reader of the sources of this trace, by Dynamo's names."""
        target, output = self.target, self.output
        own = target.code.co_varnames[0] if target.owner is not None else ""
        parameters = frozenset(target.signature.parameters)
        module = str(tx.f_globals.get("__name__", ""))
        installed = {name: output.global_scope.get(name) for name in output.installed_globals}
        wrapped = None
        if tx.f_code is not target.code:
            wrapped = Wrapped.by(tx.f_code, target.binder.by_position, target.code.co_name)
        return SourceReader(own, parameters, module, output.import_sources, installed, wrapped)

    def artifact(self, returned: Any, ingredients: Mapping[str, str]) -> Artifact:
        """Return the artifact of the call with this result. UnsupportedError names the reason why
        there is none."""
        if unknown := _unknown():
            raise UnsupportedError(unknown)
        if self.refused_call:
            raise UnsupportedError(self.refused_call)
        if self.output is None:
            raise UnsupportedError("it computes nothing with tensors")
        if self.depends is None:
            self._one_graph()  # its error says what to do if that is the cause
            raise UnsupportedError(self.refused)
        depends = self.depends
        items = {n: r.taken for n, r in enumerate(self.results) if isinstance(r, MarkedTensor)}
        known = {**self._passed_objects(), **depends.values, **depends.side_effects.owners}
        shaper = Shaper(self.results, known, items)
        effects, restored = depends.side_effects.settled(shaper)
        traced, sources = self._one_graph(), depends.sources
        held = held_constants(traced.imported.constants)
        values = (*restored, *self._constants(sources))
        constants = [with_value(Guard("value", path), self.roots, name_of) for path in values]
        gears = None if traced.geared is None else _gears(traced.geared, self.made)
        spec = CallSpec(
            name_of(self.target.function),
            tuple(map(manifest.Parameter, self.target.signature.parameters)),
            (*depends.checks, *(each for each in constants if each.of_argument)),
            (*sources, *[Source((("tensor", n),)) for n in range(len(held))]),
            shaper.describe(returned),
            *self._allowed_sizes(traced, gears, sources, shaper.integers),
            effects,
        )
        guards = replace(depends.guards, settings=state())
        kept = Manifest(spec, guards, gears, ingredients=ingredients)
        return artifact_of(kept, self.made, self.config, held)

    def _one_graph(self) -> Traced:
        """Return the one compiled graph, if that is all that has to be kept."""
        traced = one_graph(self.traced, self.captures)
        if traced.imported.objects:
            raise UnsupportedError("an argument of its graph is an object")
        return traced

    def _passed_objects(self) -> dict[Path, Any]:
        """Return the call's arguments that are neither data nor tensors, also in `*more` and
        `**rest`: a function may return such an object unchanged."""
        given = {(("argument", name),): value for name, value in self.roots.arguments.items()}
        for path, value in [*given.items()]:
            if type(value) is tuple:
                given |= {(*path, ("item", number)): each for number, each in enumerate(value)}
            elif type(value) is dict:
                given |= {(*path, ("item", name)): value[name] for name in value}
        return {
            path: value
            for path, value in given.items()
            if not isinstance(value, (torch.Tensor, *_DATA, tuple, list, dict))
        }

    def _constants(self, inputs: Sequence[Source]) -> list[Path]:
        """Arguments that are data and no input: the program is for these values."""
        taken = {source.path for source in inputs}
        given = {(("argument", name),): value for name, value in self.roots.arguments.items()}
        return [p for p, value in given.items() if isinstance(value, _DATA) and p not in taken]

    # ---- which sizes it is for --------------------------------------------------------------

    def _allowed_sizes(
        self, traced: Traced, gears: Gears | None, inputs: Sequence[Source],
        integers: Collection[int],
    ) -> tuple[tuple[Limit, ...], tuple[manifest.Condition, ...]]:  # fmt: skip
        """Return the conditions on sizes besides those of the plans. The returned `integers` may be
        sizes that Dynamo took from an argument: the program is for these sizes alone."""
        plan, geared = self.made[0].lowered.plan, traced.geared
        equal = equal_integers(inputs, traced.imported.repeated)
        if equal and gears is not None:
            raise UnsupportedError("it has gears, and an integer that was one of its sizes")
        if geared is not None and gears is not None and (gears.padding or gears.otherwise < 0):
            if integers:
                raise UnsupportedError("it has gears, and what it returns may be a size of them")
            if gears.padding is None:  # each gear has its sizes in its plan
                return (), ()
            return self._sizes_to_pad(geared.gears.guards, gears, gears.padding, inputs)
        env = self.output.shape_env
        hints = {str(symbol): value for symbol, value in env.backed_var_to_val.items()}
        known = frozenset(given_symbols(plan))
        sizes = {name: int(hints[name]) for name in known if name in hints}
        exact = {name: size for name, size in sizes.items() if size in integers}
        conditions: tuple[manifest.Condition, ...] = ()
        try:
            conditions = conditions_of(env, known)
        except UnsupportedError:
            if len(sizes) < len(known):
                raise
            exact = sizes
        fixed = [(symbol, exact[symbol.name]) for symbol in plan.symbols if symbol.name in exact]
        limits = tuple(Limit(s.name, n, n, where_of(plan, s)) for s, n in fixed)
        return limits, tuple(dict.fromkeys((*conditions, *equal)))

    def _sizes_to_pad(
        self, guards: SizeAssumptions, gears: Gears, padding: Padding, inputs: Sequence[Source]
    ) -> tuple[tuple[Limit, ...], tuple[manifest.Condition, ...]]:
        """Return the trace's conditions on sizes that are padded to a gear."""
        known = frozenset({*dict(padding.fixed), *gears.symbols})
        facts = [e for e, _ in guards.facts if {str(s) for s in e.free_symbols} <= known]
        limits: list[Limit] = []
        for symbol, (argument, axis) in zip(gears.symbols, gears.sources, strict=True):
            ends, found = guards.ranges.get(symbol), inputs[argument]
            if ends is not None:
                axis = found.axis if axis < 0 else axis
                where = f"dim {axis} of argument {paths.name_of_argument(found.path)!r}"
                limits.append(Limit(symbol, _whole(ends.lower) or 0, _whole(ends.upper), where))
        return tuple(limits), conditions_from(facts, self.output.shape_env, known)


def _refuse_functions(values: Iterable[Any]) -> None:
    for value in values:
        if calls_functions(value):
            raise UnsupportedError(
                f"it is called with a {name_of(type(value))}, which has a __torch_function__"
            )


def _hooks_of_all() -> list[Guard]:
    """Return guards that there are no hooks for all modules, which Dynamo does not read."""
    module, names = global_hooks.require()
    if all_have_hooks():
        raise UnsupportedError("all modules have hooks")
    return [Guard("shape", (("module", module.__name__), ("attribute", name))) for name in names]


def _scalars(gm: torch.fx.GraphModule) -> frozenset[int]:
    """Return the numbers of results of Dynamo's graph that are scalars made into tensors."""
    returned: Any = gm.graph.output_node().args[0]
    targets = enumerate(getattr(node, "target", None) for node in returned)
    return frozenset(number for number, target in targets if target is torch.scalar_tensor)


def _returned(tx: Any, reader: SourceReader) -> list[Guard]:
    """Return guards of outside values that are only returned, since entries hold these values."""
    values, dicts = dynamo.returned_unread(tx)
    for source, value in values:
        if not isinstance(value, _DATA):
            raise UnsupportedError(f"it returns {source.name} as it is")
    guards = [Guard("value", reader.path(source)) for source, _ in values]
    return guards + [Guard("keys", reader.path(source)) for source in dicts]


def _gears(geared: GearedCalls, compiled: Sequence[Compiled[Any]]) -> Gears:
    plans, program = [id(each.lowered.plan) for each in compiled], geared.program
    numbers = {
        sizes: plans.index(id(made.plan))
        for sizes, made in program.table.items()
        if isinstance(made, Program)
    }
    return Gears(
        tuple((source.argument, source.axis) for source in program.sources), program.symbols,
        tuple(numbers.items()), program.arguments, program.count,
        -1 if 0 in numbers.values() else 0,
        None if geared.padded is None else geared.padded.padding,
    )  # fmt: skip


def _whole(end: Any) -> int | None:
    return int(end) if end.is_Integer else None


_PARTS = {"SIZE": "size", "STRIDE": "stride", "STORAGE_OFFSET": "offset"}


def _input(source: Any, reader: SourceReader) -> Source:
    kinds: Any = dynamo.source_classes.require()
    if source is None:
        raise UnsupportedError("Dynamo does not say where an input comes from")
    if not isinstance(source, kinds.TensorPropertySource):
        found = Source(reader.path(source))
    elif source.prop.name not in _PARTS:
        raise UnsupportedError(f"it reads {source.name}")
    else:
        part = _PARTS[source.prop.name]
        found = Source(reader.path(source.base), source.idx or 0, part=part)
    if any(kind == CONTEXT for kind, *_ in found.path):
        raise UnsupportedError(f"it computes with {source.name}, which threads differ in")
    return found

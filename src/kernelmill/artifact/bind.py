"""An artifact bound to its state: its own tensors, and the module, globals and closure of the
function that was traced.

Each call checks state that may have changed: torch's settings, objects read from outside of the
arguments (by identity), and arguments that are not tensors. The native entry checks the tensors.
If a check fails, nothing is run and an InputError names the difference.

`FastPath` makes the tables of a native call (runtime/quick.py) from a full call. A later call that
does not fit them is a full call again, and the tables are rebuilt if that pays off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from kernelmill.artifact import paths
from kernelmill.artifact.code import changed_code
from kernelmill.artifact.fingerprint import code_digest, name_of
from kernelmill.artifact.guard_records import Place, place_of_input
from kernelmill.artifact.guards import (
    ArgumentChecks,
    ArgumentCode,
    asked_symbols,
    in_words,
    layout_check,
)
from kernelmill.artifact.manifest import Manifest, Source
from kernelmill.artifact.owned import Survey
from kernelmill.artifact.paths import MISSING, ArgumentReader, Path, Roots, follow, is_outside
from kernelmill.artifact.program_set import ProgramSet
from kernelmill.artifact.results import Effects, build_all
from kernelmill.artifact.settings import SettingsCheck, difference
from kernelmill.artifact.target import Target, Values
from kernelmill.artifact.unpacker import ArgumentUnpacker
from kernelmill.artifact.versions import version_of
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import of_atom
from kernelmill.core.errors import GradientError, InputError
from kernelmill.core.scalar import roots
from kernelmill.plan.ir import SymbolInput, TensorInput
from kernelmill.runtime import quick
from kernelmill.runtime.calls.engine import supported
from kernelmill.runtime.layout import Refusal
from kernelmill.runtime.memory.dims import plan_dims
from kernelmill.runtime.program import Program
from kernelmill.runtime.quick import REFUSED, NativeWatch, QuickCall, Row
from kernelmill.runtime.weights.contents import memory_behind, memory_span
from kernelmill.runtime.weights.page_scan import overlap

_MOST_STRUCTURES = 8
"""Limit on rebuilding the tables for arguments of another structure."""


def fast_path_of(
    manifest: Manifest, program: Program | None, effects: Effects | None, code: ArgumentCode
) -> FastPath | None:
    """Return the fast path into a program, or None if it cannot have one."""
    if program is None or not quick.suits(program):
        return None
    integers = _integers(manifest, program)
    return None if integers is None else FastPath(manifest, program, integers, effects, code)


def _integers(manifest: Manifest, program: Program) -> Mapping[int, int] | None:
    """Return the integer arguments to read at each call, with the number of the dim of each.

    The size of a tensor argument is checked with the tensor; strides and offsets are not, or not
    all. None when one cannot be read.
    """
    engine = program.engine
    checked = engine.tables.tensor_arguments
    inputs = manifest.spec.inputs
    tensors = {inputs[i].path: engine.plan.inputs[i] for i in checked}
    dims = {symbol.name: of_atom(symbol) for symbol in engine.plan.symbols}
    read = roots(plan_dims(engine.plan))
    asked = read | asked_symbols(manifest.spec, engine.plan)
    found: dict[int, int] = {}
    for n, argument in enumerate(engine.plan.inputs):
        source = inputs[n]
        if not isinstance(argument, SymbolInput):
            continue
        if source.part != "size" and argument.symbol not in asked:
            continue
        if source.axis >= 0 and source.part == "size":
            tensor = tensors.get(source.path)
            if not isinstance(tensor, TensorInput):
                return None
            # One that nothing reads is equal to another size, by which the tensor is checked.
            if argument.symbol in read and str(tensor.shape[source.axis]) != argument.symbol:
                return None
        elif not source.own:
            return None
        else:
            found[n] = engine.dims.number(dims[argument.symbol])
    return found


class FastPath(QuickCall):
    """The fast path of a bound program; its `caller` takes the tuple of a call's values."""

    def __init__(
        self,
        manifest: Manifest,
        program: Program,
        integers: Mapping[int, int],
        effects: Effects | None,
        code: ArgumentCode,
    ) -> None:
        self._manifest, self._integers, self._effects = manifest, integers, effects
        self._code = code
        self._own_inputs = {n for n, source in enumerate(manifest.spec.inputs) if source.own}
        self._tensors = program.engine.tables.tensor_arguments
        own = [n in self._own_inputs for n in self._tensors]
        super().__init__(program, own)
        self._structures = 0
        self._structure: ArgumentUnpacker | None = None
        self._ready = False
        self.generation = 0

    def watch(self, rows: Sequence[Row] | None) -> None:
        """Watch these rows, and refuse calls until a full one. Without rows, refuse all."""
        self.close()
        self.generation += 1
        super().watch(rows)

    def learn(self, values: Values, arguments: Sequence[Any], generation: int) -> None:
        """Learn from a full call with these values, whose program inputs were these; the generation
        is that before the inputs were searched."""
        if not self._watching or generation != self.generation:
            return
        known = self._structure is None or self._structure.holds()
        if self.refusal == Refusal.STRUCTURE or not known:
            self.refusal = 0
            self._take_apart(values, arguments)
        if not self._ready:
            return
        parameters, binding = self._program.engine.parameters, None
        if parameters is not None:
            binding = parameters.bindings.get(id(arguments[parameters.key_argument]))
            if binding is None:  # good for one call only
                return
        if self.closed or binding is not self.binding:
            kept = (None if n in self._own_inputs else value for n, value in enumerate(arguments))
            self.open(tuple(kept), binding)

    def _take_apart(self, values: Values, arguments: Sequence[Any]) -> None:
        self.close()
        self._structures += 1
        self._ready = False
        if self._structures > _MOST_STRUCTURES:
            return
        count = len(arguments)
        structure = ArgumentUnpacker(self._manifest, values, count, self._integers, self._code)
        self._structure = structure
        symbols = self._program.engine.sources
        unpacking = structure.unpacking(self._tensors, symbols, self._effects)
        if unpacking is not None:
            self.set_steps(unpacking)
            self._ready = True


class Mismatch(InputError):
    """A guard of a program does not hold any more; the message names it."""


def _roots(
    target: Target | None, tensors: Sequence[Any] = (), given: Mapping[str, Any] | None = None
) -> Roots:
    owner, cells = (None, {}) if target is None else (target.owner, target.cells)
    return Roots(owner, given or {}, cells, tensors)


@dataclass(frozen=True)
class GuardResult:
    """Result of evaluating all guards. `reason` names the guard that fails, and is empty when all
    hold; `values` are those of the manifest's tree, `owned` is the survey of the owner, and `code`
    that of the code among given arguments."""

    reason: str
    values: Sequence[Any] = ()
    owned: Survey | None = None
    code: ArgumentCode | None = None


def evaluate_guards(
    manifest: Manifest,
    target: Target | None,
    arguments: Sequence[Any] | None = None,
    tensors: Sequence[Any] = (),
) -> GuardResult:
    """Evaluate the guards of a program for this target and, if values of all parameters are given,
    for a call with these (tensors aside)."""
    spec, guards = manifest.spec, manifest.guards
    if differs := difference(guards.settings):
        return GuardResult(differs)
    for name, value in guards.packages.items():
        if version_of(name) != value:
            return GuardResult(f"version of {name}: was {value}, is {version_of(name)}")
    if target is not None and target.binder.names != spec.names:
        return GuardResult("the parameters of the function")
    if target is not None and not _is_function(manifest, target):
        return GuardResult(f"it is of another function: {spec.name}")
    for use in guards.code:
        if differs := changed_code(use):
            return GuardResult(differs)
    given = {} if arguments is None else dict(zip(spec.names, arguments, strict=True))
    values = manifest.tree.values(_roots(target, tensors, given))
    code = None if arguments is None else _argument_code(manifest)
    checks = code and ArgumentChecks(spec.checks, range(len(values)), code)
    if checks and (differs := checks.difference(values)):
        return GuardResult(differs)
    owned = [each for each in spec.inputs if is_outside(each.path)]
    missing = [e.path for e in owned if values[e.place] is MISSING]
    if missing:
        return GuardResult(f"{in_words(missing[0])} is not there")
    survey = _survey(manifest, target, values, [values[each.place] for each in owned])
    return GuardResult(survey.difference(guards.lines), values, survey, code)


def _survey(
    manifest: Manifest, target: Target | None, values: Sequence[Any], inputs: Sequence[Any]
) -> Survey:
    """Return a survey of the current state of the owner, made in the order of the trace."""
    guards, rows = manifest.guards, manifest.tree.rows
    survey = Survey(frozenset(guards.names), inputs, guards.whole)
    cells = {} if target is None else target.cells
    for root in guards.roots:
        before, step = rows[root.place]
        owner = cells.get(step[-1]) if before < 0 else values[before]
        survey.add_root(root, values[root.place], owner)
    return survey


def _is_function(manifest: Manifest, target: Target) -> bool:
    """Check that the target is the traced function, by name and code: an overriding method or a
    lambda may share the name, and a copy in another module reads other globals."""
    own = code_digest(target.code)
    return (name_of(target.function), own) == (manifest.spec.name, manifest.guards.function)


class Bound:
    """A program bound to its state: call it with a value for each parameter.

    `quick` is a call with fewer checks, which returns REFUSED when something differs from the last
    call. `tensors` are those stored in the artifact.
    """

    def __init__(
        self,
        manifest: Manifest,
        programs: ProgramSet,
        tensors: Sequence[torch.Tensor],
        target: Target | None = None,
        seen: GuardResult | None = None,
        any_class: bool = False,
    ) -> None:
        """Raise Mismatch when a guard fails; `seen` is a result of `evaluate_guards`, if there is
        one. With `any_class` tensors may have a `__torch_function__`, which was traced."""
        spec = manifest.spec
        self.tensors, self.counts = tensors, programs.counts

        def find(path: Path, values: Sequence[Any]) -> Any:
            return follow(path, _roots(target, given=dict(zip(spec.names, values, strict=True))))

        self._build = build_all(spec, find)
        self._read = ArgumentReader(manifest.tree, spec.names)
        numbers = self._read.numbers
        self._effects = Effects(manifest, numbers) if spec.effects else None
        code = (seen and seen.code) or _argument_code(manifest)
        self._fast_path = path = fast_path_of(manifest, programs.single, self._effects, code)
        self._call = None if path is None else path.caller(self._build, self._effects)
        self._layouts_fit = layout_check(spec.checks, self._read)
        self._settings = SettingsCheck(manifest.guards.settings)
        self._watched = _Watched(manifest, target, self.tensors, path, self._effects, code)
        self._watched.evaluate_again(seen)
        self.is_current = self._watched.is_current
        self._find = _own_inputs(manifest, numbers, code)
        self._gather = _gatherer(manifest, programs.written, self._watched.places, any_class)
        self._own_names = [paths.name_of_argument(each.path) for each in spec.inputs if each.own]
        self._run = programs.call

    @property
    def quick(self) -> Callable[[Values], Any]:
        """The fast path at present; each full call can replace it."""
        if self._call is None:
            return lambda values: REFUSED
        # Checks that the native entry does not make come before its call.
        looks = (self._settings.unseen_fit, self._watched.without_rows)
        call, unseen = self._call, [look for look in looks if look is not None]
        layouts_fit = self._layouts_fit
        if not unseen and layouts_fit is None:
            return call

        def quick(values: Values) -> Any:
            for fits in unseen:
                if not fits():
                    return REFUSED
            if layouts_fit is not None and not layouts_fit(values):
                return REFUSED
            return call(values)

        return quick

    @property
    def reads_gradients(self) -> bool:
        """True if a tensor from outside of the arguments requires grad."""
        places = self._watched.places
        return any(getattr(owner[key], "requires_grad", False) for owner, key in places)

    def __call__(self, values: Values) -> Any:
        """Run the program with all checks. InputError names the check that fails."""
        if differs := self._settings.difference():
            raise Mismatch(differs)
        if not self.is_current():
            self._watched.evaluate_again()
        found = self._read(values)
        own = self._find(found)
        self._watched.watch_new_code()
        generation = 0 if self._fast_path is None else self._fast_path.generation
        inputs = self._gather(own)
        if torch.is_grad_enabled():
            refuse_gradients(zip(self._own_names, own, strict=True))
        effects, owners = self._effects, None
        if effects is not None:
            owners = effects.owners(found)
            if owners is None:
                raise Mismatch("objects that the program changes and reads are one object")
        results = self._run(*inputs)
        if self._fast_path is not None:
            self._fast_path.learn(values, inputs, generation)
        made = self._build(results, values)
        if effects is None or owners is None:
            return made
        return effects.apply(owners, made)


def refuse_gradients(arguments: Iterable[tuple[str, Any]]) -> None:
    """Raise GradientError with the name of the first tensor that requires grad."""
    for name, value in arguments:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise GradientError(
                f"argument {name!r} requires grad, and the program is for inference only: call it "
                f"under torch.no_grad() or torch.inference_mode(), or pass {name}.detach()"
            )


class _Watched:
    """The watch over state outside of the arguments, made again after a change. `places` are those
    of inputs that are not in the arguments."""

    def __init__(
        self,
        manifest: Manifest,
        target: Target | None,
        tensors: Sequence[Any],
        fast_path: FastPath | None,
        effects: Effects | None,
        code: ArgumentCode,
    ) -> None:
        self._manifest, self._target, self._tensors = manifest, target, tensors
        self._native = fast_path or (NativeWatch() if supported() else None)
        self._effects, self._code = effects, code
        self.places: list[Place] = []

    def is_current(self) -> bool:
        """Return whether watched state is as it was, by identity. The watch is renewed then."""
        native = self._native
        seen_alone = self.without_rows is None or self.without_rows()
        if native is not None and native.guards_hold() and seen_alone:
            return True
        if not self.watch.unchanged():
            return False
        if native is not None:
            self.watch.note_moved(native.rows)
            self._watch_all()
        return True

    def watch_new_code(self) -> None:
        """Watch the classes and functions that this call is the first to pass."""
        if self._code.fresh:
            self._code.fresh = False
            self._watch_all()

    def _watch_all(self) -> None:
        self.without_rows = self.watch.without_rows()
        if self._native is not None:
            self._native.watch(self.watch.rows())

    def evaluate_again(self, seen: GuardResult | None = None) -> None:
        """Evaluate all guards and rebuild the watch; raise Mismatch when one fails."""
        manifest, target = self._manifest, self._target
        seen = seen or evaluate_guards(manifest, target, tensors=self._tensors)
        if seen.reason:
            raise Mismatch(seen.reason)
        assert seen.owned is not None  # `evaluate_guards` sets it when no reason is given
        self.places[:] = [
            place_of_input(manifest.tree, seen.values, source.place)
            for source in manifest.spec.inputs
            if not source.own
        ]
        watch = seen.owned.records
        watch.places = self.places
        for use in manifest.guards.code:
            watch.add_code(use)
        self.watch = watch
        self._code.watch_with(watch, known=seen.code is self._code)
        if self._effects is not None:
            self._effects.keep_apart_from(seen.owned.ids())
        self._watch_all()


# ---- inputs ---------------------------------------------------------------------------------

Gather = Callable[[Sequence[Any]], Sequence[Any]]


def _gatherer(
    manifest: Manifest, written: frozenset[int], places: Sequence[Place], any_class: bool
) -> Gather:
    """Return a function that puts the program's inputs together from those that a call brings."""
    inputs = manifest.spec.inputs
    order = sorted(range(len(inputs)), key=lambda n: not inputs[n].own)  # as they are found
    in_order = order == sorted(order)
    positions = sorted(order, key=order.__getitem__)
    takers = [_integer_in(source) for source in inputs if not source.own]
    apart: list[Any] = [()]  # addresses of tensors in the last call without shared memory

    def gather(own: Sequence[Any]) -> Sequence[Any]:
        try:
            outside: list[Any] = [owner[key] for owner, key in places]
        except (KeyError, IndexError) as error:
            raise Mismatch(f"{error} is not there") from error
        if any(takers):
            outside = [take(v) if take else v for take, v in zip(takers, outside, strict=True)]
        found = [*own, *outside]
        if not in_order:
            found = [found[n] for n in positions]
        for value in () if any_class else own:
            if type(value) not in _PLAIN and calls_functions(value):
                name = type(value).__name__
                raise InputError(f"the class {name} has a __torch_function__ of its own")
        if written:
            # A weight that stays the same object may have got other memory: `weight.data = ...`.
            plain = [isinstance(t, torch.Tensor) and t.layout == torch.strided for t in found]
            tensors = {n: found[n] for n in range(len(found)) if plain[n]}
            now = list(map(id, found)), [(t.data_ptr(), t.numel()) for t in tensors.values()]
            if now != apart[0]:
                _refuse_shared(manifest, tensors, written)
                apart[0] = now
        return found

    return gather


_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, int))
_PLAIN_FUNCTIONS = frozenset(
    getattr(kind.__torch_function__, "__func__", kind.__torch_function__)
    for kind in (torch.Tensor, torch.nn.Parameter)
)


def calls_functions(value: Any) -> bool:
    """Return whether a tensor's class overrides `__torch_function__`, and so sees each operator."""
    if not isinstance(value, torch.Tensor):
        return False
    function: Any = type(value).__torch_function__
    return getattr(function, "__func__", function) not in _PLAIN_FUNCTIONS


def _argument_code(manifest: Manifest) -> ArgumentCode:
    # A file compiled ahead has no names of code: those members of classes count that it reads.
    steps = [step for _, step in manifest.tree.rows]
    guards = manifest.guards
    return ArgumentCode(guards.names or {str(step[-1]) for step in steps}, guards.whole)


def _own_inputs(manifest: Manifest, numbers: Mapping[int, int], code: ArgumentCode) -> Gather:
    """Return a function that checks a call's values, and takes the program's inputs from them."""
    own = [source for source in manifest.spec.inputs if source.own]
    checks = ArgumentChecks(manifest.spec.checks, numbers, code)
    taken = [(numbers[source.place], _integer_in(source)) for source in own]
    if not manifest.spec.checks and taken == [(n, None) for n in range(len(numbers))]:
        return lambda found: found

    def find(found: Sequence[Any]) -> Sequence[Any]:
        if differs := checks.difference(found):
            raise InputError(differs)
        made: list[Any] = []
        try:
            for number, integer in taken:
                value = found[number]
                if value is MISSING:
                    raise InputError(f"{in_words(own[len(made)].path)} is not there")
                made.append(value if integer is None else integer(value))
        except (AttributeError, IndexError, RuntimeError, TypeError) as error:
            source = own[len(made)]
            wanted = f"expected a tensor with a {source.what}, got another value ({error})"
            raise InputError(f"{in_words(source.path)}: {wanted}") from error
        return made

    return find


def _integer_in(source: Source) -> Callable[[Any], int] | None:
    """Return how an integer is read from a tensor; None for an input used unchanged."""
    axis, times, plus = source.axis, source.times, source.plus
    if axis < 0:
        return None
    if source.part != "size":
        stride = source.part == "stride"
        return lambda value: value.stride(axis) if stride else value.storage_offset()
    return lambda value: (value.shape[axis] - plus) // times


def _refuse_shared(manifest: Manifest, tensors: Mapping[int, Any], written: frozenset[int]) -> None:
    """Raise InputError when a tensor that is written to shares memory with another one."""
    real = {n: t for n, t in tensors.items() if t.numel()}
    if not overlap([memory_behind(t.untyped_storage()) for t in real.values()]):
        return
    # Tensors in one storage, as weights of a file, may be disjoint; and tensors with storages of
    # their own may overlap, as two tensors over one array.
    spans = {number: memory_span(tensor) for number, tensor in real.items()}
    if not overlap([*spans.values()]):
        return
    for pair in ({n, other} for n in sorted(written & spans.keys()) for other in spans):
        if overlap([spans[number] for number in pair]):
            first, second = (_name_of(manifest, number) for number in sorted(pair))
            raise InputError(
                f"arguments {first!r} and {second!r} share memory, and one of them is written to: "
                "pass a clone"
            )


def _name_of(manifest: Manifest, number: int) -> str:
    path = manifest.spec.inputs[number].path
    if path[0][0] == "tensor":
        return manifest.tensors[path[0][1]].name
    return paths.name_of_argument(path)

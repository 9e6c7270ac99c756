"""The programs of an artifact, by the sizes that they accept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, Union

from kernelmill.artifact.container import DIMS, DRIVER, Artifact
from kernelmill.artifact.manifest import CallSpec, Gears, Manifest
from kernelmill.artifact.objects import graph_texts, objects_of, plans_of
from kernelmill.artifact.paths import name_of_argument
from kernelmill.artifact.shapes import results_in
from kernelmill.artifact.sizes import broken_sizes, size_check
from kernelmill.config import CompilerConfig
from kernelmill.config.compiler_config import CheckWeights
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import GearError, InputError, StoreError
from kernelmill.gears.gear_set import Axis, GearSet
from kernelmill.plan.ir import Plan, TensorInput, bodies_of
from kernelmill.runtime.calls.bodies import ProgramBody
from kernelmill.runtime.counters import Count
from kernelmill.runtime.executor import give_executor
from kernelmill.runtime.gears.geared import Callee, GearedProgram, Refuse
from kernelmill.runtime.gears.padded_calls import PaddedCalls
from kernelmill.runtime.memory.dims import SizeSource
from kernelmill.runtime.memory.frames import FramePool
from kernelmill.runtime.program import DIMS_OBJECT, Program, load
from kernelmill.runtime.weights.packing import PackPlace
from kernelmill.store.store import Store

Call = Callable[..., list[Any]]
Otherwise = Callable[[tuple[Any, ...]], Union[list[Any], None]]
"""Runs a call that no gear accepts; None when it cannot either."""


class Counting(Callee, Protocol):
    """A program with counters."""

    def counts(self) -> Iterable[Count]: ...


@dataclass(frozen=True)
class ProgramSet:
    """The linked programs of an artifact. `call` takes the inputs of its CallSpec; `single` is set
    when `call` is that of this one program. `written` are the numbers of the inputs written to."""

    call: Call
    programs: tuple[Counting, ...]
    single: Program | None
    written: frozenset[int]

    def counts(self) -> Iterator[Count]:
        """Yield the counters of all its programs; see `Program.report`."""
        return chain.from_iterable(program.counts() for program in self.programs)


def program_set(
    artifact: Artifact,
    store: Store | None = None,
    place: PackPlace | None = None,
    config: CompilerConfig | None = None,
) -> ProgramSet:
    """Link the programs of an artifact.

    Objects that the file does not bring come from the store; those missing there are compiled into
    it. `place` keeps packed parameters beyond this process. In mode reduce-overhead of `config`
    each set of sizes is captured when it first comes.
    """
    all_plans, manifest = plans_of(artifact), artifact.manifest
    give_executor(artifact.objects)
    objects = objects_of(artifact, all_plans, store)
    weights = "auto" if config is None else config.check_weights
    plans, bodies = _with_bodies(all_plans, objects, weights)
    called = {name: ProgramBody(program) for name, program in bodies.items()}
    _check_counts(manifest, plans)
    pool = FramePool()
    captures = config is not None and config.mode == REDUCE_OVERHEAD
    programs: list[Counting] = []
    for number, plan in enumerate(plans):
        own = _objects_of_plan(plan, number, objects)
        check = None if _beside_padding(manifest.gears, number) else size_check(manifest.spec, plan)
        in_order = manifest.spec.in_order
        program = load(plan, own, pool, check, place, in_order=in_order, bodies=called)
        program.check_weights(weights)
        again = captures and bool(plan.symbols)
        programs.append(_recaptured(program, artifact, number, config) if again else program)
    gears, first = manifest.gears, programs[0]
    call = first.call if gears is None else _geared(manifest.spec, gears, programs)
    single = first if gears is None and isinstance(first, Program) else None
    return ProgramSet(call, (*programs, *bodies.values()), single, _written(plans, gears))


def _with_bodies(
    plans: Sequence[Plan], objects: Mapping[str, bytes], weights: CheckWeights
) -> tuple[Sequence[Plan], dict[str, Program]]:
    """Return the plans that are no bodies of others, and the programs of the bodies: these come
    last, each after the bodies it calls."""
    named = {name for plan in plans for name in bodies_of(plan)}
    first = next((n for n, plan in enumerate(plans) if plan.name in named), len(plans))
    found: dict[str, Program] = {}
    for number, plan in enumerate(plans[first:], first):
        known = {name: ProgramBody(program) for name, program in found.items()}
        program = load(plan, _objects_of_plan(plan, number, objects), bodies=known)
        program.check_weights(weights)
        found[plan.name] = program
    return plans[:first], found


def _check_counts(manifest: Manifest, plans: Sequence[Plan]) -> None:
    """Raise StoreError for a plan with other inputs than it would be given, or too few results."""
    spec, gears = manifest.spec, manifest.gears
    wanted = max(map(results_in, (spec.result, *(effect.value for effect in spec.effects))))
    for number, plan in enumerate(plans):
        kept = None if gears is None or number == gears.otherwise else gears.kept
        given = spec.inputs if kept is None else kept
        if len(plan.inputs) != len(given) or len(plan.results) < wanted:
            raise StoreError(f"its plan {number} does not fit its inputs and results")


def _written(plans: Sequence[Plan], gears: Gears | None) -> frozenset[int]:
    found: set[int] = set()
    for number, plan in enumerate(plans):
        entries = enumerate(plan.inputs)
        updated = [n for n, entry in entries if isinstance(entry, TensorInput) and entry.updated]
        kept = None if gears is None or number == gears.otherwise else gears.kept
        found.update(n if kept is None else kept[n] for n in updated)
    return frozenset(found)


def _beside_padding(gears: Gears | None, number: int) -> bool:
    """Return whether a plan runs calls instead of padding, which checks their sizes itself."""
    return gears is not None and gears.padding is not None and number == gears.otherwise


def _objects_of_plan(plan: Plan, number: int, objects: Mapping[str, bytes]) -> dict[str, bytes]:
    own = {kernel.name: objects[kernel.name] for kernel in plan.kernels}
    own.update({s.name: objects[f"{DRIVER}{number} {s.name}"] for s in plan.supers})
    if plan.symbols:
        own[DIMS_OBJECT] = objects[f"{DIMS}{number}"]
    return own


def _recaptured(program: Program, artifact: Artifact, number: int, config: Any) -> Counting:
    # Imported here: other modes need no compiler.
    from kernelmill.compiler.pipeline import Compiler
    from kernelmill.graph.parser import parse_graph

    return Compiler(config).recapture(program, parse_graph(graph_texts(artifact)[number]))


def _geared(spec: CallSpec, gears: Gears, programs: Sequence[Callee]) -> Call:
    sources = tuple(SizeSource(*source) for source in gears.sources)
    table = {sizes: programs[number] for sizes, number in gears.table}
    geared = GearedProgram(sources, gears.symbols, table, gears.kept, gears.count)
    otherwise: Otherwise | None = None
    dynamic = programs[gears.otherwise] if gears.otherwise >= 0 else None
    if gears.padding is not None:
        other = dynamic if isinstance(dynamic, Program) else None
        broken = broken_sizes(spec, {*gears.symbols, *dict(gears.padding.fixed)})
        otherwise = PaddedCalls(gears.padding, geared, broken, other, spec.in_order)
    elif dynamic is not None:
        call = dynamic.call
        otherwise = lambda arguments: call(*arguments)  # noqa: E731
    return geared.caller(_refuser(spec, geared, otherwise))


def _refuser(spec: CallSpec, geared: GearedProgram, otherwise: Otherwise | None) -> Refuse:
    def refuse(arguments: tuple[Any, ...], error: Exception | None) -> Any:
        if error is not None and not isinstance(error, InputError):
            raise InputError(f"an argument has no such size: {error}") from error
        made = None if otherwise is None else otherwise(arguments)
        if made is not None:
            return made
        if error is not None:  # of the program of its gear
            raise error
        axes = tuple(_axis(spec, source) for source in geared.sources)
        came = ", ".join(dict.fromkeys(repr(axis.argument) for axis in axes))
        raise GearError(GearSet(axes, tuple(geared.table)).refusal(came, geared.read(arguments)))

    return refuse


def _axis(spec: CallSpec, source: SizeSource) -> Axis:
    found = spec.inputs[source.argument]
    return Axis(name_of_argument(found.path), source.axis if source.axis >= 0 else found.axis)

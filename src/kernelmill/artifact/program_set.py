"""The programs of an artifact, by the sizes that they accept, with their kernels as text and as
machine code, from the file, from the store, or compiled from the text. Only compiling imports the
code generator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, Union

from kernelmill.artifact.container import DIMS, DRIVER, Artifact, SavedKernel
from kernelmill.artifact.guard_kinds import OBJECT
from kernelmill.artifact.guards import broken_sizes, size_check
from kernelmill.artifact.manifest import CallSpec, Gears, Manifest, read_manifest, results_in
from kernelmill.artifact.paths import name_of_argument
from kernelmill.artifact.tensors import HeldTensor, WeightLayout
from kernelmill.config import CompilerConfig
from kernelmill.config.compiler_config import CheckWeights
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import Key
from kernelmill.core.errors import GearError, InputError, StoreError, UnsupportedError
from kernelmill.core.target.isa import Isa, parse_isa, target_isa
from kernelmill.core.version import ABI_VERSION
from kernelmill.gears.gear_set import GearDim, GearSet
from kernelmill.plan.ir import AtenCall, Plan, TensorInput, bodies_in, bodies_of
from kernelmill.plan.text import parse_plan
from kernelmill.runtime.calls.engine import NO_BODIES, Bodies, Callee, ProgramBody
from kernelmill.runtime.counters import Count
from kernelmill.runtime.executor import executor_object, give_executor
from kernelmill.runtime.gears.padded_calls import GearedProgram, PaddedCalls, Refuse
from kernelmill.runtime.memory.dims import SizeSource, dims_needed
from kernelmill.runtime.memory.frames import FramePool
from kernelmill.runtime.program import DIMS_OBJECT, Program, load
from kernelmill.runtime.weights.packing import PackPlace
from kernelmill.store.store import Store, open_store

if TYPE_CHECKING:
    from kernelmill.compiler.linking import Compiled, LoweredProgram

_PLAN = re.compile(r"^(?=plan \")", re.MULTILINE)
_GRAPH = re.compile(r"^(?=graph )", re.MULTILINE)


def plans_of(artifact: Artifact) -> list[Plan]:
    """Parse and return the plans of an artifact."""
    return [parse_plan(text) for text in _PLAN.split(artifact.plans)[1:]]


def graph_texts(artifact: Artifact) -> list[str]:
    """Return the texts of an artifact's graphs."""
    return _GRAPH.split(artifact.graphs)[1:]


def artifact_of(
    manifest: Manifest,
    made: Sequence[Compiled[Any]],
    config: CompilerConfig,
    held: Sequence[HeldTensor],
) -> Artifact:
    """Return the artifact of compiled programs and the tensors they hold, with no machine code but
    the native executor's. The plans of bodies come last, their graphs are inside of the others.
    UnsupportedError for a body that only this process can run."""
    # Imported here: loads do not come this way.
    from kernelmill.artifact.versions import versions
    from kernelmill.compiler.linking import with_theirs
    from kernelmill.graph.text import print_graph
    from kernelmill.plan.text import print_plan

    isa, layout = target_isa(config.target, to_run=False), WeightLayout(held)
    mains = [each.draft for each in made]
    bodies = with_theirs(body for each in made for body in each.bodies)
    drafts = [*mains, *(body.draft for body in bodies)]
    _check_kept(drafts, manifest.spec)
    ingredients = {**versions(isa), **manifest.ingredients, **_key_parts(isa)}
    manifest = replace(manifest, tensors=layout.weights, ingredients=ingredients)
    return Artifact(
        read_manifest(manifest.text()),  # with its tree
        "".join(print_plan(draft.lowered.plan) for draft in drafts),
        "".join(print_graph(draft.graph, own_symbols=True) for draft in mains),
        tuple(_kernels(drafts, isa)),
        dict([executor_object(isa)]),
        [each.tensor for each in held],
        {"weights": layout.pieces},
    )


def _check_kept(drafts: Sequence[LoweredProgram], spec: CallSpec) -> None:
    from kernelmill.graph.ir import Held

    given = " ".join(check.name for check in spec.checks if check.kind == OBJECT).split()
    for draft in drafts:
        for step in (each for each in draft.lowered.plan.steps if isinstance(each, AtenCall)):
            for name in bodies_in(step):
                body = draft.graph.bodies[name]
                if isinstance(body, Held) and name not in given:
                    raise UnsupportedError(
                        f"{step.target} is given a {body.kind} that only torch can run or read"
                        f"{step.origin and f' (at {step.origin})'}"
                    )


def _kernels(drafts: Sequence[LoweredProgram], isa: Isa) -> list[SavedKernel]:
    from kernelmill.compiler.objects import driver_text, driver_type
    from kernelmill.kernel.text import print_kernel

    found: dict[str, SavedKernel] = {}
    for number, draft in enumerate(drafts):
        plan = draft.lowered.plan
        for ref in plan.kernels:
            text = print_kernel(draft.lowered.kernels[ref.name], name=False)
            other = str(draft.others.get(ref.name, ""))
            found[ref.name] = SavedKernel(ref.name, ref.type, text, other)
        for super_kernel in plan.supers:
            name = f"{DRIVER}{number} {super_kernel.name}"
            text = driver_text(plan, super_kernel, isa)
            found[name] = SavedKernel(name, driver_type(super_kernel), text)
        if plan.symbols:
            dims = ", ".join(map(str, dims_needed(plan)))
            text = f"({', '.join(s.name for s in plan.symbols)}) -> ({dims})"
            found[f"{DIMS}{number}"] = SavedKernel(f"{DIMS}{number}", "Dims", text)
    return list(found.values())


# ---- machine code ---------------------------------------------------------------------------

_KEY_PARTS = ("isa", "generator", "llvm", "abi")


def _key_parts(isa: Isa) -> dict[str, str]:
    """Return the ingredients of kernel keys that the manifest keeps, by name."""
    from kernelmill import codegen

    parts = (str(isa), codegen.GENERATOR_VERSION, codegen.llvm_version(), ABI_VERSION)
    return {f"kernel.{name}": part for name, part in zip(_KEY_PARTS, parts, strict=True)}


def key_of(kernel: SavedKernel, ingredients: Mapping[str, str]) -> Key:
    """Return the key under which stores keep the kernel's object."""
    parts = {part: ingredients[f"kernel.{part}"] for part in _KEY_PARTS}
    other = {"isa": kernel.isa} if kernel.isa else {}
    return Key.of({**parts, **other, kernel.ingredient: kernel.text})


def with_objects(artifact: Artifact, config: CompilerConfig) -> Artifact:
    """Return the artifact with the machine code of all its kernels, from the store of a config."""
    store = open_store(config.experimental_config.kernel_meta_dir, config.on_untrusted)
    return replace(artifact, objects=objects_of(artifact, plans_of(artifact), store))


def objects_of(artifact: Artifact, plans: Sequence[Plan], store: Store | None) -> dict[str, bytes]:
    """Return the objects of an artifact by name: those it brings, and others from the store. Those
    missing there are compiled into it."""
    objects, ingredients = dict(artifact.objects), artifact.manifest.ingredients
    others = [kernel for kernel in artifact.kernels if kernel.name not in objects]
    if store is None or not others:
        return objects
    entries = {kernel: store.get(key_of(kernel, ingredients), kernel.type) for kernel in others}
    objects |= {kernel.name: entry.object for kernel, entry in entries.items() if entry}
    missing = [kernel for kernel, entry in entries.items() if entry is None]
    isa = parse_isa(ingredients["kernel.isa"])
    return objects | _compiled(missing, plans, store, isa) if missing else objects


def _compiled(
    missing: Sequence[SavedKernel], plans: Sequence[Plan], store: Store, isa: Isa
) -> dict[str, bytes]:
    # Imported here: most loads find all kernels and need no code generator.
    from kernelmill.compiler.objects import Request, obtain, obtain_dims, obtain_drivers
    from kernelmill.kernel.text import parse_kernel

    objects: dict[str, bytes] = {}
    requests: list[Request] = []
    others: dict[str, Isa] = {}
    refs = {ref.name: ref for plan in plans for ref in plan.kernels}
    for saved in missing:
        if saved.type == "Dims":
            plan = plans[int(saved.name.removeprefix(DIMS))]
            entry = obtain_dims(plan.symbols, dims_needed(plan), store, isa)
            objects[saved.name] = entry.object
            continue
        if saved.ingredient == "driver":
            number, _, name = saved.name.removeprefix(DRIVER).partition(" ")
            objects[saved.name] = obtain_drivers(plans[int(number)], store, isa)[name]
            continue
        kernel = parse_kernel(saved.text.replace("kernel _(", f"kernel {saved.name}(", 1))
        kernel.type = saved.type
        ref = refs[saved.name]
        requests.append(Request(kernel, ref.operators, ref.origin))
        if saved.isa:
            others[saved.name] = parse_isa(saved.isa)
    found = obtain(requests, store, isa, others) if requests else {}
    return {**objects, **{name: entry.object for name, entry in found.items()}}


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
    bodies: Bodies = NO_BODIES,
) -> ProgramSet:
    """Link the programs of an artifact.

    Objects that the file does not bring come from the store; those missing there are compiled into
    it. `place` keeps packed parameters beyond this process. In mode reduce-overhead of `config`
    each set of sizes is captured when it first comes. `bodies` are objects that only this process
    has, by their names in plans.
    """
    all_plans, manifest = plans_of(artifact), artifact.manifest
    give_executor(artifact.objects)
    objects = objects_of(artifact, all_plans, store)
    if config is None:
        config = CompilerConfig()
        config.check_weights = manifest.options.get("check_weights", config.check_weights)
    plans, inner = _with_bodies(all_plans, objects, config.check_weights)
    called = {**bodies, **{name: ProgramBody(program) for name, program in inner.items()}}
    _check_counts(manifest, plans)
    pool = FramePool()
    programs: list[Counting] = []
    for number, plan in enumerate(plans):
        own = _objects_of_plan(plan, number, objects)
        check = None if _beside_padding(manifest.gears, number) else size_check(manifest.spec, plan)
        in_order = manifest.spec.in_order
        program = load(plan, own, pool, check, place, in_order=in_order, bodies=called)
        program.check_weights(config.check_weights)
        again = config.mode == REDUCE_OVERHEAD and bool(plan.symbols)
        programs.append(_recaptured(program, artifact, number, config) if again else program)
    gears, first = manifest.gears, programs[0]
    call = first.call if gears is None else _geared(manifest.spec, gears, programs)
    single = first if gears is None and isinstance(first, Program) else None
    return ProgramSet(call, (*programs, *inner.values()), single, _written(plans, gears))


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
    from kernelmill.graph.text import parse_graph

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


def _axis(spec: CallSpec, source: SizeSource) -> GearDim:
    found = spec.inputs[source.argument]
    return GearDim(name_of_argument(found.path), source.axis if source.axis >= 0 else found.axis)

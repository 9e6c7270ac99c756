"""Kernels of an artifact as text, and their machine code: from the file, from the store, or
compiled from the text. Only then is the code generator imported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernelmill.artifact.container import DIMS, DRIVER, Artifact, SavedKernel
from kernelmill.artifact.manifest import Manifest
from kernelmill.core.digest import Key
from kernelmill.core.errors import UnsupportedError
from kernelmill.core.target.isa import Isa, parse_isa
from kernelmill.core.version import ABI_VERSION
from kernelmill.plan.ir import AtenCall, Plan, bodies_in
from kernelmill.plan.parser import parse_plan
from kernelmill.runtime.executor import executor_object
from kernelmill.runtime.memory.dims import dims_needed
from kernelmill.store.sealed import Pieces
from kernelmill.store.store import Store

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
    isa: Isa,
    tensors: Sequence[Any],
    pieces: Mapping[str, Pieces],
) -> Artifact:
    """Return the artifact of compiled programs, with no machine code but the native executor's.
    `tensors` and `pieces` are as in `Artifact`. The plans of bodies come last, their graphs are
    inside of the others. UnsupportedError for a body that only this process can run."""
    # Imported here: loads do not come this way.
    from kernelmill.compiler.linking import with_theirs
    from kernelmill.graph.printer import print_graph
    from kernelmill.plan.printer import print_plan

    mains = [each.draft for each in made]
    bodies = with_theirs(body for each in made for body in each.bodies)
    drafts = [*mains, *(body.draft for body in bodies)]
    _check_kept(drafts)
    return Artifact(
        replace(manifest, ingredients={**manifest.ingredients, **_key_parts(isa)}),
        "".join(print_plan(draft.lowered.plan) for draft in drafts),
        "".join(print_graph(draft.graph, own_symbols=True) for draft in mains),
        tuple(_kernels(drafts, isa)),
        dict([executor_object(isa)]),
        tensors,
        pieces,
    )


def _check_kept(drafts: Sequence[LoweredProgram]) -> None:
    from kernelmill.graph.ir import Held

    for draft in drafts:
        for step in (each for each in draft.lowered.plan.steps if isinstance(each, AtenCall)):
            for name in bodies_in(step):
                body = draft.graph.bodies[name]
                if isinstance(body, Held):
                    raise UnsupportedError(
                        f"{step.target} is given a {body.kind} that only torch can run or read"
                        f"{step.origin and f' (at {step.origin})'}"
                    )


def _kernels(drafts: Sequence[LoweredProgram], isa: Isa) -> list[SavedKernel]:
    from kernelmill.compiler.objects import driver_text, driver_type
    from kernelmill.kernel.printer import print_kernel

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


def with_objects(artifact: Artifact, store: Store) -> Artifact:
    """Return the artifact with the machine code of all its kernels."""
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
    from kernelmill.kernel.parser import parse_kernel

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

"""Kernels of an artifact as text, and their machine code: from the file, from stores, or compiled
from the text. Only then is the code generator imported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernelmill.artifact.container import DIMS, DRIVER, Artifact, SavedKernel
from kernelmill.core.digest import Key
from kernelmill.core.isa import Isa, parse_isa
from kernelmill.core.version import ABI_VERSION
from kernelmill.plan.ir import Plan
from kernelmill.plan.parser import parse_plan
from kernelmill.runtime.dims import dims_needed
from kernelmill.store.entry import Compiled
from kernelmill.store.store import Store

if TYPE_CHECKING:
    from kernelmill.compiler.linking import LoweredProgram

_PLAN = re.compile(r"^(?=plan \")", re.MULTILINE)
_GRAPH = re.compile(r"^(?=graph )", re.MULTILINE)


def plans_of(artifact: Artifact) -> list[Plan]:
    """The plans of an artifact."""
    return [parse_plan(text) for text in _PLAN.split(artifact.plans)[1:]]


def graph_texts(artifact: Artifact) -> list[str]:
    """The texts of its graphs."""
    return _GRAPH.split(artifact.graphs)[1:]


def texts_of(
    drafts: Sequence[LoweredProgram], isa: Isa
) -> tuple[str, str, tuple[SavedKernel, ...]]:
    """Plans, graphs and kernels of what the compiler has made for an instruction set."""
    # Imported here: loads do not come this way.
    from kernelmill.graph.printer import print_graph
    from kernelmill.plan.printer import print_plan

    return (
        "".join(print_plan(draft.lowered.plan) for draft in drafts),
        "".join(print_graph(draft.graph, own_symbols=True) for draft in drafts),
        tuple(_kernels(drafts, isa)),
    )


def _kernels(drafts: Sequence[LoweredProgram], isa: Isa) -> list[SavedKernel]:
    from kernelmill.compiler.drivers import driver_text, driver_type
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


def key_parts(isa: Isa) -> dict[str, str]:
    """The ingredients of the keys of kernels that the manifest keeps, by name."""
    from kernelmill import codegen

    parts = (str(isa), codegen.GENERATOR_VERSION, codegen.llvm_version(), ABI_VERSION)
    return {f"kernel.{name}": part for name, part in zip(_KEY_PARTS, parts, strict=True)}


def key_of(kernel: SavedKernel, ingredients: Mapping[str, str]) -> Key:
    """The key under which stores keep the kernel's object."""
    parts = {part: ingredients[f"kernel.{part}"] for part in _KEY_PARTS}
    other = {"isa": kernel.isa} if kernel.isa else {}
    return Key.of({**parts, **other, kernel.ingredient: kernel.text})


def keep_objects(artifact: Artifact, source: Store, target: Store) -> None:
    """Copy the objects of an artifact's kernels into another store."""
    for kernel in artifact.kernels:
        key = key_of(kernel, artifact.manifest.ingredients)
        found = source.get(key, kernel.type)
        if found is not None and target.get(key, kernel.type) is None:
            target.put(key, kernel.type, Compiled(found.object, found.info, found.launch))


def objects_of(
    kernels: Sequence[SavedKernel],
    plans: Sequence[Plan],
    ingredients: Mapping[str, str],
    stores: Sequence[Store],
) -> dict[str, bytes]:
    """The objects of these kernels: looked for in all stores; what is in none is compiled into the
    last."""
    objects: dict[str, bytes] = {}
    missing: list[SavedKernel] = []
    for kernel in kernels:
        key = key_of(kernel, ingredients)
        entries = (store.get(key, kernel.type) for store in stores)
        entry = next((entry for entry in entries if entry is not None), None)
        if entry is None:
            missing.append(kernel)
        else:
            objects[kernel.name] = entry.object
    if missing:
        isa = parse_isa(ingredients["kernel.isa"])
        objects.update(_compiled(missing, plans, stores[-1], isa))
    return objects


def _compiled(
    missing: Sequence[SavedKernel], plans: Sequence[Plan], store: Store, isa: Isa
) -> dict[str, bytes]:
    # Imported here: most loads find all kernels and need no code generator.
    from kernelmill.compiler.drivers import obtain_drivers
    from kernelmill.compiler.objects import Request, obtain, obtain_dims
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

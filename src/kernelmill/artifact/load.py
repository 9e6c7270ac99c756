"""From an entry to programs that can be called: objects come from a store, or are compiled from the
kernels' saved text. Only then is the code generator imported."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Union

import torch

from kernelmill.artifact.conditions import condition_check
from kernelmill.artifact.entry import DRIVER, Saved, SavedKernel
from kernelmill.artifact.manifest import Gears
from kernelmill.artifact.padding import padded_calls
from kernelmill.config import CompilerConfig
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.digest import Key
from kernelmill.core.errors import InputError
from kernelmill.core.isa import Isa, parse_isa
from kernelmill.plan.ir import Plan
from kernelmill.plan.parser import parse_plan
from kernelmill.runtime.dims import dims_needed
from kernelmill.runtime.engine import CheckSizes
from kernelmill.runtime.executor import executor_name, give_executor
from kernelmill.runtime.geared import Callee, GearedProgram, Refuse, SizeSource
from kernelmill.runtime.memory import FramePool
from kernelmill.runtime.packing import PackPlace
from kernelmill.runtime.program import DIMS_OBJECT, Program, load
from kernelmill.store.entry import Compiled
from kernelmill.store.store import Store

Call = Callable[..., list[Any]]
Otherwise = Callable[[tuple[Any, ...]], Union[list[Any], None]]
"""Runs a call that no gear takes; None when it cannot either."""

_PLAN = re.compile(r"^(?=plan \")", re.MULTILINE)
_GRAPH = re.compile(r"^(?=graph )", re.MULTILINE)

KEY_PARTS = ("isa", "generator", "llvm", "abi")
"""Ingredients of a kernel's key that the manifest keeps, as "kernel.isa" and so on."""


def split_plans(text: str) -> list[str]:
    """The texts of the plans in a .plan file."""
    return _PLAN.split(text)[1:]


class Reporting(Callee, Protocol):
    """A program with counters."""

    def report(self) -> dict[str, int]: ...


@dataclass(frozen=True)
class Loaded:
    """What runs an entry. `call` puts the tensors that it holds behind its arguments; `program` is
    there when that is the call of this one program. `reports` give the counters of each program."""

    call: Call
    program: Program | None
    reports: tuple[Callable[[], dict[str, int]], ...] = ()

    def report(self) -> dict[str, int]:
        """The counters of all its programs together; see `Program.report`."""
        found: Counter[str] = Counter()
        for report in self.reports:
            found.update(report())
        return dict(found)


def split_graphs(text: str) -> list[str]:
    """The texts of the graphs in a .graph file."""
    return _GRAPH.split(text)[1:]


def program_of(
    saved: Saved,
    stores: Sequence[Store],
    place: PackPlace | None = None,
    config: CompilerConfig | None = None,
) -> Loaded:
    """The programs of an entry.

    Objects are looked for in all stores; what is in none is compiled into the last. `place` is
    where packed parameters are kept beyond this process. In mode reduce-overhead of `config` each
    set of sizes is captured when it comes.
    """
    manifest = saved.manifest
    plans = [parse_plan(text) for text in split_plans(saved.plans)]
    if saved.executor:  # of these very sources, which the folder of the entry stands for
        give_executor({executor_name(): saved.executor})
    objects = _objects(saved, plans, stores)
    pool = FramePool()
    captures = config is not None and config.mode == REDUCE_OVERHEAD
    programs: list[Reporting] = []
    for number, plan in enumerate(plans):
        own = {kernel.name: objects[kernel.name] for kernel in plan.kernels}
        own.update({s.name: objects[f"{DRIVER}{number} {s.name}"] for s in plan.supers})
        if plan.symbols:
            own[DIMS_OBJECT] = objects[f"{DIMS_OBJECT}{number}"]
        program = load(plan, own, pool, _check(saved, plan), place)
        program.check_weights("auto" if config is None else config.check_weights)
        again = captures and bool(plan.symbols)
        programs.append(_recaptured(program, saved, number, config) if again else program)
    call = programs[0].call if manifest.gears is None else _geared(manifest.gears, programs)
    held = constants_of(saved)
    first = programs[0]
    single = first if isinstance(first, Program) and manifest.gears is None and not held else None
    reports = tuple(program.report for program in programs)
    return Loaded((lambda *args: call(*args, *held)) if held else call, single, reports)


def _recaptured(program: Program, saved: Saved, number: int, config: Any) -> Reporting:
    # Imported here: other modes need no compiler.
    from kernelmill.compiler.pipeline import recaptured
    from kernelmill.graph.parser import parse_graph

    return recaptured(program, parse_graph(split_graphs(saved.graphs)[number]), config)


def _geared(gears: Gears, programs: Sequence[Callee]) -> Call:
    sources = tuple(SizeSource(*source) for source in gears.sources)
    table = {sizes: programs[number] for sizes, number in gears.table}
    geared = GearedProgram(sources, gears.symbols, table, gears.kept, gears.count)
    otherwise: Otherwise | None = None
    if gears.otherwise >= 0:
        dynamic = programs[gears.otherwise].call
        otherwise = lambda arguments: dynamic(*arguments)  # noqa: E731
    elif gears.padding is not None:
        otherwise = padded_calls(gears.padding, geared)
    return geared.caller(_refuser(otherwise))


def _refuser(otherwise: Otherwise | None) -> Refuse:
    def refuse(arguments: tuple[Any, ...], error: Exception | None) -> Any:
        made = None if otherwise is None else otherwise(arguments)
        if made is not None:
            return made
        shapes = [list(a.shape) for a in arguments if isinstance(a, torch.Tensor)]
        raise InputError(f"no gear has the sizes {shapes}") from error

    return refuse


def constants_of(saved: Saved) -> tuple[torch.Tensor, ...]:
    """The tensors that the traced code held."""
    made: list[torch.Tensor] = []
    for constant in saved.manifest.constants:
        dtype: Any = getattr(torch, constant.dtype)
        data = saved.constants[constant.offset : constant.offset + constant.bytes]
        flat = (
            torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        )
        made.append(flat.clone().reshape(constant.shape))
    return tuple(made)


def key_of(kernel: SavedKernel, ingredients: Mapping[str, str]) -> Key:
    """The key under which stores keep the kernel's object."""
    parts = {part: ingredients[f"kernel.{part}"] for part in KEY_PARTS}
    other = {"isa": kernel.isa} if kernel.isa else {}
    return Key.of({**parts, **other, kernel.ingredient: kernel.text})


def keep_objects(saved: Saved, source: Store, target: Store) -> None:
    """Copy the objects of an entry's kernels into another store."""
    for kernel in saved.kernels:
        key = key_of(kernel, saved.manifest.ingredients)
        found = source.get(key, kernel.type)
        if found is not None and target.get(key, kernel.type) is None:
            target.put(key, kernel.type, Compiled(found.object, found.info, found.launch))


def _objects(saved: Saved, plans: Sequence[Plan], stores: Sequence[Store]) -> dict[str, bytes]:
    objects: dict[str, bytes] = {}
    missing: list[SavedKernel] = []
    for kernel in saved.kernels:
        key = key_of(kernel, saved.manifest.ingredients)
        entries = (store.get(key, kernel.type) for store in stores)
        entry = next((entry for entry in entries if entry is not None), None)
        if entry is None:
            missing.append(kernel)
        else:
            objects[kernel.name] = entry.object
    if missing:
        isa = parse_isa(saved.manifest.ingredients["kernel.isa"])
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
            plan = plans[int(saved.name.removeprefix(DIMS_OBJECT))]
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


def _check(saved: Saved, plan: Plan) -> CheckSizes | None:
    """What holds the sizes of a call against the conditions of the trace."""
    manifest = saved.manifest
    if not plan.symbols or not (manifest.conditions or manifest.exact):
        return None
    fits = condition_check(manifest.conditions, plan)

    def check(values: Mapping[str, int]) -> None:
        for name, value in manifest.exact.items():
            if values.get(name, value) != value:
                raise InputError(f"size {name} is {values[name]}, and {value} when it was compiled")
        fits(values)

    return check

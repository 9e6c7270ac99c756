"""Jobs to compile tasks: traced and lowered on the model's machine, without machine code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from kernelmill.aot.exporting import exported_graph
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.artifact.objects import graph_texts
from kernelmill.backend.entry import Backend, configured
from kernelmill.codegen import key_of
from kernelmill.compiler import Compiled, Compiler
from kernelmill.compiler.kernel_info import Use, describe
from kernelmill.compiler.objects import (
    Request,
    driver_info,
    driver_text,
    driver_type,
    kernel_key,
    obtain_dims,
    requests_of,
)
from kernelmill.config import CompilerConfig
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError
from kernelmill.core.factory import Factory, called, load
from kernelmill.core.target.isa import Isa
from kernelmill.fleet.jobs import NATIVE, Job
from kernelmill.fleet.task import CompileTask, Wanted
from kernelmill.graph.ir import Graph
from kernelmill.graph.parser import parse_graph
from kernelmill.inference.dim_gears import set_dim_gears
from kernelmill.runtime.memory.dims import dims_needed
from kernelmill.store.sealed import SealedFile
from kernelmill.store.store import Store


@dataclass(frozen=True)
class Collected:
    """The objects of one program, for an ISA: tasks, and the names of entries that are in the store
    already because they are made in no time."""

    isa: Isa
    wanted: tuple[Wanted, ...]
    there: tuple[str, ...] = ()


Take = Callable[[Collected], None]


def trace(job: Job, store: Store, take: Take) -> None:
    """Lower a job's model for each target; `take` gets each program as soon as it is lowered.

    Calls the model once in eager. Raises the errors of its code and of the compiler:
    KernelmillError for a fault of the job.
    """
    for target in job.targets:
        config = _config(job, target, store)
        on_compiled = partial(_take_needs, job, config, store, take)
        with torch.no_grad():
            if job.is_function:
                _call(job, Backend(config, on_compiled=on_compiled, lower_only=True))
                continue
            for graph in _graphs(job):
                Compiler(config, on_compiled, lower_only=True).compile(graph)


def _take_needs(
    job: Job, config: CompilerConfig, store: Store, take: Take, made: Compiled[Any]
) -> None:
    if config.mode == REDUCE_OVERHEAD and made.lowered.plan.symbols:
        raise ConfigError(
            f"job {job.name}: mode {REDUCE_OVERHEAD!r} captures each set of sizes when it comes, "
            "and nobody knows these before; declare them as gears of a function"
        )
    take(_collected(made, store))


def _config(job: Job, target: str, store: Store) -> CompilerConfig:
    # Schedules follow the figures of the machine that the folder has.
    options = {**job.options, "experimental_config.kernel_meta_dir": store.folder.path}
    if target != NATIVE:
        options["target"] = target
    config = configured(CompilerConfig(), options=options)
    if config.experimental_config.aclgraph._aclnn_static_shape_kernel:
        raise ConfigError(
            f"job {job.name}: _aclnn_static_shape_kernel chooses kernels by measuring, which only "
            "the machine that runs them can do; build a package there with `kernelmill static`"
        )
    if config.aoe_config.aoe_mode is not None:
        raise ConfigError(
            f"job {job.name}: aoe_config.aoe_mode measures kernels, which only the machine that "
            "runs them can do"
        )
    if config.debug.run_eagerly:
        raise ConfigError(f"job {job.name}: debug.run_eagerly compiles nothing")
    return config


def _graphs(job: Job) -> Iterable[Graph]:
    """Return the graphs of a model that is a file or an exported program."""
    if isinstance(job.model, ExportedProgram):
        return [exported_graph(job.model, job.name)]
    file = SealedFile(str(job.model), KMILL)
    return map(parse_graph, graph_texts(read_artifact(file, check_weights=False)))


def _call(job: Job, backend: Backend) -> None:
    made = load(job.model) if isinstance(job.model, str) else called(job.model, job.name)
    arguments = _arguments(job, made)
    for argument, dims in job.gears.items():
        if argument not in arguments:
            known = ", ".join(arguments)
            raise ConfigError(f"job {job.name}: no argument {argument!r} for gears; {known}")
        set_dim_gears(arguments[argument], {d: list(s) for d, s in dims.items()})
    torch.compiler.reset()  # a program for another target is none for this one
    try:
        # Not with dynamic=True: sizes that are no gears' would be symbols too, and the kernels
        # others than those that a service looks for.
        compiled: Any = torch.compile(made.model, backend=backend)
        compiled(*made.args, **made.kwargs)
    finally:
        torch.compiler.reset()


def _arguments(job: Job, made: Factory) -> dict[str, Any]:
    """Return arguments by position and by name."""
    by_position = {str(number): value for number, value in enumerate(made.args)}
    names = _names(made.model)
    by_name = dict(zip(names, made.args, strict=False))
    return {**by_position, **by_name, **made.kwargs}


def _names(model: Any) -> Sequence[str]:
    try:
        return list(inspect.signature(getattr(model, "forward", model)).parameters)
    except (TypeError, ValueError):  # some of torch's own functions have none
        return ()


def _collected(made: Compiled[Any], store: Store) -> Collected:
    plan, isa = made.lowered.plan, made.machine.isa
    wanted = [
        _kernel(request, made.draft.others.get(request.kernel.name, isa))
        for request in requests_of(plan, made.lowered.kernels)
    ]
    for super_kernel in plan.supers:
        text = driver_text(plan, super_kernel, isa)
        task = CompileTask(driver_type(super_kernel), key_of(isa, driver=text), super_kernel.name)
        info = driver_info(plan, super_kernel, text)
        wanted.append(Wanted(task, info, {"kernelName": super_kernel.name}))
    there: tuple[str, ...] = ()
    if plan.symbols:  # some milliseconds of work, and it needs the plan
        there = (obtain_dims(plan.symbols, dims_needed(plan), store, isa).name,)
    return Collected(isa, tuple(wanted), there)


def _kernel(request: Request, isa: Isa) -> Wanted:
    kernel = request.kernel
    key = kernel_key(kernel, isa, request.text)
    task = CompileTask(kernel.type, key, kernel.name)
    use = Use(request.operators, request.shapes, request.graph, request.origin)
    info, launch = describe(kernel, use, isa, task.name)
    return Wanted(task, info, launch)

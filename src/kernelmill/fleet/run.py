"""`kernelmill.precompile`: the kernels of many models, compiled by the workers of an executor."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import field
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from kernelmill.aot.exporting import exported_graph
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.artifact.program_set import graph_texts
from kernelmill.backend.entry import Backend, configured
from kernelmill.codegen import key_of
from kernelmill.compiler.linking import Compiled
from kernelmill.compiler.objects import (
    Request,
    Use,
    describe,
    driver_info,
    driver_text,
    driver_type,
    kernel_key,
    obtain_dims,
    requests_of,
)
from kernelmill.compiler.pipeline import Compiler
from kernelmill.config import CompilerConfig
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, KernelmillError, StoreError
from kernelmill.core.factory import Factory, called, load
from kernelmill.core.log import get_logger
from kernelmill.core.target.isa import Isa
from kernelmill.fleet.dispatch import Dispatch, Failure, Progress
from kernelmill.fleet.jobs import NATIVE, Job
from kernelmill.fleet.local import LocalPool
from kernelmill.fleet.manifest import FolderManifests, ModelManifest, SharedManifests, own_compiler
from kernelmill.fleet.task import CompileTask, Wanted
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import parse_graph
from kernelmill.inference.dim_gears import set_dim_gears
from kernelmill.runtime.memory.dims import dims_needed
from kernelmill.store.remote import SharedStore, open_shared
from kernelmill.store.sealed import SealedFile
from kernelmill.store.store import Store, default_folders


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
    KernelmillError for an error in the job.
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


_log = get_logger("fleet")


@dataclass(frozen=True)
class Summary:
    """The result of `precompile`.

    jobs      whose manifests are written
    found     objects that a store had already
    compiled  objects made now
    failures  of jobs and kernels
    unshared  entries and manifests that could not be written to the shared store
    seconds   of the whole run
    """

    jobs: tuple[str, ...]
    found: int
    compiled: int
    failures: tuple[Failure, ...]
    unshared: int
    seconds: float


def precompile(
    jobs: Iterable[Job | str] | Job | str,
    executor: Executor | None = None,
    store: str | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Compile all entries of the jobs into the kernel folder and the shared store.

    jobs      the jobs; a string stands for the job of that model
    executor  runs the compiles; by default a process for each processor of this machine. This
              thread traces and lowers the models; workers get texts, and need no torch.
    store     URL of the shared store, KERNELMILL_REMOTE by default; without either the kernels are
              only in the folder
    folder    folder of kernels, KERNELMILL_KERNEL_META by default
    progress  called with the progress after each change

    Objects in a store are not compiled again: an interrupted run continues where it stopped. The
    summary lists jobs and kernels that failed; the others go on. Raises ConfigError for a shared
    store without KERNELMILL_REMOTE_KEY, StoreError for a folder that cannot be trusted.
    """
    wanted = [jobs] if isinstance(jobs, (Job, str)) else jobs
    all_jobs = [Job(job) if isinstance(job, str) else job for job in wanted]
    kernels = _open(folder)
    shared = open_shared(store)
    failures: list[Failure] = []
    done: list[str] = []
    with (
        nullcontext(executor) if executor is not None else LocalPool() as workers,
        Dispatch(workers, kernels, shared, progress or (lambda _: None)) as dispatch,
    ):
        runs = [
            run for run in (_trace(job, kernels, dispatch, failures) for job in all_jobs) if run
        ]
        dispatch.settle(wait=True)
        unshared = dispatch.unshared
        for run in runs:
            if not run.names() & dispatch.failures.keys():
                done.append(run.job.name)
                unshared += _finish(run, kernels, shared if not unshared else None)
    made = dispatch.progress
    failures += dispatch.failures.values()
    return Summary(tuple(done), made.found, made.compiled, tuple(failures), unshared, made.seconds)


@dataclass
class _Run:
    """A traced job, and its entries: names of entries by the text of the ISA."""

    job: Job
    entries: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])

    def take(self, dispatch: Dispatch, collected: Collected) -> None:
        names = self.entries.setdefault(str(collected.isa), {})
        names.update(dict.fromkeys([one.task.name for one in collected.wanted]))
        names.update(dict.fromkeys(collected.there))
        dispatch.take(collected.wanted)
        dispatch.share(collected.there)

    def names(self) -> set[str]:
        return {name for names in self.entries.values() for name in names}

    def manifests(self) -> list[ModelManifest]:
        return [
            ModelManifest(self.job.name, own_compiler(), isa, tuple(sorted(names)))
            for isa, names in self.entries.items()
        ]


def _trace(job: Job, kernels: Store, dispatch: Dispatch, failures: list[Failure]) -> _Run | None:
    run = _Run(job)
    try:
        trace(job, kernels, partial(run.take, dispatch))
    except Exception as error:
        known = isinstance(error, (KernelmillError, OSError))
        _log.info("job %s", job.name, exc_info=error)
        what = str(error) if known else f"{type(error).__name__}: {error}"
        failures.append(Failure(job.name, what))
        return None
    if not run.entries:
        failures.append(Failure(job.name, "nothing of it was compiled; it runs in torch"))
        return None
    return run


def _finish(run: _Run, kernels: Store, shared: SharedStore | None) -> int:
    """Write the manifests; return the number that the shared store, if any, did not get."""
    own = FolderManifests(kernels.folder)
    unshared = 0
    for manifest in run.manifests():
        own.keep(manifest)
        try:
            if shared is not None and not unshared:
                SharedManifests(shared).keep(manifest)
        except StoreError as error:
            unshared += 1
            _log.warning("%s: its manifest is in the kernel folder only: %s", run.job.name, error)
    return unshared


def _open(folder: str | os.PathLike[str] | None) -> Store:
    """Return the kernel folder, without its own shared store: a run uses that in batches."""
    paths = default_folders() if folder is None else (os.fspath(folder),)
    return Store(paths[-1], paths[:-1])

"""`kernelmill.precompile`: the kernels of many models, compiled by the workers of an executor."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import field
from functools import partial

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import KernelmillError, StoreError
from kernelmill.core.log import get_logger
from kernelmill.fleet.dispatch import Dispatch, Failure, Progress
from kernelmill.fleet.jobs import Job
from kernelmill.fleet.local import LocalPool
from kernelmill.fleet.manifest import FolderManifests, Manifest, SharedManifests, own_compiler
from kernelmill.fleet.tracing import Collected, trace
from kernelmill.store.shared import SharedStore, open_shared
from kernelmill.store.store import Store, default_folders

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

    jobs      to do; a string is the job of that model
    executor  compiles; by default a process for each processor of this machine. Models are traced
              and lowered here, in this thread; workers get texts, and need no torch.
    store     URL of the shared store, KERNELMILL_REMOTE by default; without any the kernels are in
              the folder only
    folder    of kernels, KERNELMILL_KERNEL_META by default
    progress  called with the progress after each change

    Objects in a store are not compiled: an interrupted run continues where it stopped. A job or
    kernel that fails is listed in the summary and stops no other. Raises ConfigError for a shared
    store without KERNELMILL_REMOTE_KEY, StoreError for a folder that cannot be trusted.
    """
    wanted = [jobs] if isinstance(jobs, (Job, str)) else jobs
    all_jobs = [Job(job) if isinstance(job, str) else job for job in wanted]
    kernels = _open(folder)
    shared = open_shared(store)
    failures: list[Failure] = []
    done: list[str] = []
    with (
        _own_or(executor) as workers,
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

    def manifests(self) -> list[Manifest]:
        return [
            Manifest(self.job.name, own_compiler(), isa, tuple(sorted(names)))
            for isa, names in self.entries.items()
        ]


def _trace(job: Job, kernels: Store, dispatch: Dispatch, failures: list[Failure]) -> _Run | None:
    run = _Run(job)
    try:
        trace(job, kernels, partial(run.take, dispatch))
    except Exception as error:
        known = isinstance(error, (KernelmillError, OSError))
        _log.info("job %s", job.name, exc_info=error)
        failures.append(Failure(job.name, str(error) if known else f"{_name(error)}: {error}"))
        return None
    if not run.entries:
        failures.append(Failure(job.name, "nothing of it was compiled; it runs in torch"))
        return None
    return run


def _name(error: Exception) -> str:
    return type(error).__name__


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


@contextmanager
def _own_or(executor: Executor | None) -> Generator[Executor]:
    """Yield the caller's executor, which is not shut down; or one for this call."""
    if executor is not None:
        yield executor
        return
    pool = LocalPool()
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)

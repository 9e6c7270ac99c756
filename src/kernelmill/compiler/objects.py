"""Kernels to objects through the store: what is there is reused, the rest compiled in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from kernelmill import codegen
from kernelmill.compiler.kernel_info import Use, describe
from kernelmill.compiler.progress import Progress
from kernelmill.core.digest import Key
from kernelmill.core.dim import Dim, Sym
from kernelmill.core.target import Target
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.printer import print_kernel
from kernelmill.plan.ir import Launch, Plan
from kernelmill.runtime.layout import ABI_VERSION
from kernelmill.store.entry import Compiled, Entry
from kernelmill.store.store import Store

_REDRAW_SECONDS = 0.2


@dataclass(frozen=True)
class Request:
    """A kernel that a program needs, with the operators it does the work of.

    `shapes` are those of the tensors behind the kernel's buffers where it is first launched, in
    the kernel's order; none known: the buffers are described as flat. `graph` names the program.
    """

    kernel: Kernel
    operators: tuple[str, ...]
    origin: str
    shapes: tuple[tuple[Dim, ...], ...] = ()
    graph: str = ""


def requests_of(plan: Plan, kernels: Mapping[str, Kernel]) -> list[Request]:
    """What a plan launches, each kernel once."""
    launches = [s for s in (*plan.prepare, *plan.steps) if isinstance(s, Launch)]
    first = {launch.kernel: launch for launch in reversed(launches)}
    requests: list[Request] = []
    for ref in plan.kernels:
        numbers = first[ref.name].buffers
        shapes = tuple(plan.buffers[n].shape if n >= 0 else (1,) for n in numbers)
        kernel = kernels[ref.name]
        requests.append(Request(kernel, ref.operators, ref.origin, shapes, plan.name))
    return requests


def kernel_key(kernel: Kernel, target: Target) -> Key:
    """All that decides the bytes of a kernel's object, by name."""
    return key_of(target, kernel=print_kernel(kernel, name=False))


def obtain(requests: Sequence[Request], store: Store, target: Target) -> dict[str, Entry]:
    """The objects of all kernels by kernel name, compiling those that the store has not."""
    return obtain_all([requests], store, target)[0]


def obtain_all(
    batches: Sequence[Sequence[Request]],
    store: Store,
    target: Target,
    others: Sequence[Mapping[str, Target]] = (),
) -> list[dict[str, Entry]]:
    """The same for several programs at once, in which a name may mean different kernels.

    `others` are, for each program, the targets of kernels that are not for `target`.
    """
    others = others or [{}] * len(batches)
    jobs = {
        (number, r.kernel.name): _job(r, store, others[number].get(r.kernel.name, target))
        for number, batch in enumerate(batches)
        for r in batch
    }
    found: list[dict[str, Entry]] = [{} for _ in batches]
    for (number, name), entry in _run_all(jobs).items():
        found[number][name] = entry
    return found


_Job = tuple[int, str]


def _run_all(jobs: Mapping[_Job, Callable[[], Entry]]) -> dict[_Job, Entry]:
    if len(jobs) < 2:
        return {name: job() for name, job in jobs.items()}
    workers = min(len(jobs), len(os.sched_getaffinity(0)))
    pool = ThreadPoolExecutor(workers)
    progress = Progress(len(jobs))
    try:
        futures = {name: pool.submit(job) for name, job in jobs.items()}
        waiting = set(futures.values())
        while waiting:
            done, waiting = wait(waiting, _REDRAW_SECONDS, FIRST_EXCEPTION)
            for future in done:
                future.result()  # raises what the compile raised
            progress.show(len(jobs) - len(waiting))
        return {name: future.result() for name, future in futures.items()}
    finally:
        # After an error or Ctrl-C what has not begun is dropped; kernels being compiled are kept.
        pool.shutdown(wait=True, cancel_futures=True)
        progress.close()


def obtain_dims(symbols: Sequence[Sym], dims: Sequence[Dim], store: Store, target: Target) -> Entry:
    """The object that computes a dynamic plan's sizes from its symbols."""
    text = f"({', '.join(s.name for s in symbols)}) -> ({', '.join(map(str, dims))})"

    def compile() -> Compiled:
        image = codegen.dims_function("dims", symbols, dims, target)
        return Compiled(image, {"dims": text}, {"kernelName": "dims"})

    return store.get_or_compile(key_of(target, dims=text), "Dims", compile)


def key_of(target: Target, **what: str) -> Key:
    """`what`, and all else that decides what is compiled from it."""
    return Key.of(
        {
            **what,
            "target": str(target),
            "generator": codegen.GENERATOR_VERSION,
            "llvm": codegen.llvm_version(),
            "abi": ABI_VERSION,
        }
    )


def _job(request: Request, store: Store, target: Target) -> Callable[[], Entry]:
    kernel = request.kernel
    key = kernel_key(kernel, target)

    def compile() -> Compiled:
        image = codegen.compile_kernel(kernel, target)
        use = Use(request.operators, request.shapes, request.graph, request.origin)
        info, launch = describe(kernel, use, target, f"{kernel.type}_{key.digest}")
        return Compiled(image, info, launch)

    return lambda: store.get_or_compile(key, kernel.type, compile)


def differences(entry: Entry, store: Store, type: str) -> tuple[str, ...]:
    """In which ingredients the store's nearest other entry differs from this one."""
    nearest: Any = store.nearest(entry.key, type)
    return () if nearest is None else nearest.differences

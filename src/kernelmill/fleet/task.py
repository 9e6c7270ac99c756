"""A compile as data, from which any worker makes machine code without the model and torch."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kernelmill import codegen
from kernelmill.codegen import key_of
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import Key
from kernelmill.core.errors import KernelmillError
from kernelmill.core.target.isa import parse_isa
from kernelmill.kernel.text import parse_kernel
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.store.entry import NewEntry

KERNEL, DRIVER = "kernel", "driver"
"""Ingredients of keys: a kernel's text in the grammar of kernel/ir.py without its name, or the LLVM
IR of a super kernel's driver."""


@dataclass(frozen=True)
class CompileTask:
    """A compile task. `key` is that of the object in stores, with the text as one of its
    ingredients; `symbol` the function that the object exports."""

    type: str
    key: Key
    symbol: str

    @property
    def name(self) -> str:
        """Name of the entry in stores."""
        return f"{self.type}_{self.key.digest}"


@dataclass(frozen=True)
class Wanted:
    """An object that a program needs, with the documents that stores keep with it."""

    task: CompileTask
    info: Mapping[str, Any]
    launch: Mapping[str, Any]

    def compiled(self, image: bytes) -> NewEntry:
        """Return the store's record of the object."""
        return NewEntry(image, self.info, self.launch)


@dataclass(frozen=True)
class Declined:
    """The reason why a worker has no object for a task. `elsewhere`: its version of LLVM or of
    kernelmill differs from the key's, so that another worker may have the object."""

    reason: str
    elsewhere: bool = False


@dataclass(frozen=True)
class BatchOutcome:
    """The outcomes of the tasks of a batch, in their order: the ELF object of each, or a refusal,
    and the seconds it took. `worker` identifies the thread, process and machine."""

    worker: str
    results: tuple[bytes | Declined, ...]
    seconds: tuple[float, ...]


def compile_batch(tasks: Sequence[CompileTask]) -> BatchOutcome:
    """Compile one task after the other, as the function that an executor runs."""
    worker = f"{socket.gethostname()} {os.getpid()} {threading.get_ident()}"
    times, results = [time.perf_counter()], list[bytes | Declined]()
    for task in tasks:
        results.append(compile_task(task))
        times.append(time.perf_counter())
    seconds = tuple(end - begin for begin, end in pairwise(times))
    return BatchOutcome(worker, tuple(results), seconds)


def compile_task(task: CompileTask) -> bytes | Declined:
    """Return the ELF object of a task. Errors are returned: each kind of worker would wrap a raised
    one in its own way."""
    ingredients = dict(task.key.ingredients)
    kind = KERNEL if KERNEL in ingredients else DRIVER
    text = ingredients[kind]
    try:
        isa = parse_isa(ingredients["isa"])
        own = key_of(isa, **{kind: text})
        if own != task.key:
            return Declined(_differences(own, task.key), elsewhere=True)
        if kind == DRIVER:
            return codegen.emit(text, isa)
        kernel = parse_kernel(text.replace("kernel _(", f"kernel {task.symbol}(", 1))
        kernel.type = task.type
        verify_kernel(kernel, "lowering")
        return codegen.compile_kernel(kernel, isa)
    except (KernelmillError, ValueError) as error:
        return Declined(f"{type(error).__name__}: {error}")


def _differences(own: Key, asked: Key) -> str:
    mine, theirs = dict(own.ingredients), dict(asked.ingredients)
    return ", ".join(
        f"{name} {mine.get(name)} where {theirs.get(name)} is asked for"
        for name in own.differences(asked)
    )

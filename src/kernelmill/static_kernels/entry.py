"""Public functions of static kernels. Importing this loads no compiler and no torch._dynamo."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from kernelmill.static_kernels.logs import Built, known_operators


@contextmanager
def record(path: str | os.PathLike[str]) -> Generator[None]:
    """Record the operators and shapes of all compiled programs that are called inside the context.

    They are appended to the log at `path`, one JSON document a line, each once. Models run as they
    do without it. FileError when the log cannot be written.

    The environment variable KERNELMILL_RECORD_OPS does the same for a whole process.
    """
    from kernelmill.compiler.static_build import recording

    with recording(os.fspath(path)):
        yield


def from_profiler(profiler: Any, path: str | os.PathLike[str]) -> tuple[int, int]:
    """Append the operators of a finished `torch.profiler.profile(record_shapes=True)` to a log.

    Operators that ran inside of others are left out. Return the number of new ones, and the number
    of kinds that cannot be recorded (lists of tensors, operators that write into their arguments,
    and those without kernel). ConfigError for a session without shapes, FileError as `record`.
    """
    from kernelmill.static_kernels.profiler import record_session

    return record_session(profiler, os.fspath(path))


def compile_log(
    path: str | os.PathLike[str], jobs: int = 0, target: str = "native", folder: str | None = None
) -> Built:
    """Compile static kernels for the operators of a log, or of a folder of documents.

    `jobs` operators at a time (0: one for each processor), into the kernel folder. Those with a
    known choice are skipped. KernelmillError for a file that is no log, FileError for one that
    cannot be read.
    """
    known = known_operators(os.fspath(path), target, folder)
    if known is not None:
        return Built(known, 0, ())
    from kernelmill.static_kernels.offline import Offline

    return Offline(os.fspath(path), target, folder).compile(jobs)


def build(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] = ".",
    *,
    wheel: bool = False,
    name: str = "",
    jobs: int = 0,
    target: str = "native",
    folder: str | None = None,
) -> Built:
    """Compile a log as `compile_log` does, and pack all its kernels as a .run file or a wheel.

    `name` is that of the package; static_kernel_{datetime} by default. Raises as `compile_log`, and
    FileError when it cannot be written.
    """
    from kernelmill.static_kernels.offline import Offline

    offline = Offline(os.fspath(path), target, folder)
    return offline.build(jobs, os.fspath(output), wheel, name)

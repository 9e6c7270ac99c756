"""`torchair.scope`: the marks of `kernelmill.scope`, without what only an NPU has."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from kernelmill import scope as own
from kernelmill.compat.warned import warn_once
from kernelmill.config.super_kernel_marks import HARDWARE_OPTIONS


@contextmanager
def super_kernel(scope: str | None, options: str = "") -> Generator[None]:
    """`kernelmill.scope.super_kernel`. Options that steer the hardware of an NPU are left out, with
    a warning for each."""
    with own.super_kernel(scope, _without_hardware(options) if options else options):
        yield


@torch.compiler.assume_constant_result
def _without_hardware(options: str) -> str:
    """The options that mean something on a CPU, or that are wrong."""
    kept: list[str] = []
    for part in options.split(":"):
        name, equals, _ = part.partition("=")
        if equals and name in HARDWARE_OPTIONS:
            warn_once(f"the super_kernel option {name}", "it steers the hardware of an NPU")
        else:
            kept.append(part)
    return ":".join(kept)


@contextmanager
def limit_core_num(op_aicore_num: int, op_vectorcore_num: int) -> Generator[None]:
    """The operators inside, on all cores: a CPU has neither kind."""
    _warn_of_cores()
    yield


@torch.compiler.assume_constant_result
def _warn_of_cores() -> None:
    warn_once("torchair.scope.limit_core_num", "torch.set_num_threads sets the parallelism")

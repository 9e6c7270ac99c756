"""`torchair.scope`: the marks of `kernelmill.scope`, without what only an NPU has."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from kernelmill import scope as own
from kernelmill.compat.warned import warn_once
from kernelmill.config.super_kernel_marks import HARDWARE_OPTIONS
from kernelmill.core.errors import ConfigError


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
def limit_core_num(
    op_aicore_num: int, op_vectorcore_num: int, stream: object = None
) -> Generator[None]:
    """Calls inside have at most as many threads as the larger number says, those of compiled models
    too. Inside of compiled code, all threads. ConfigError for numbers of no cores."""
    if torch.compiler.is_compiling():
        _warn_of_cores()
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, _cores(op_aicore_num, op_vectorcore_num)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cores(cube: object, vector: object) -> int:
    for name, number, least in (("op_aicore_num", cube, 1), ("op_vectorcore_num", vector, 0)):
        if type(number) is not int or number < least:
            raise ConfigError(
                f"limit_core_num: {name} is {number!r}, and has to be a whole number from {least}"
            )
    assert isinstance(cube, int) and isinstance(vector, int)
    return max(cube, vector)


@torch.compiler.assume_constant_result
def _warn_of_cores() -> None:
    warn_once(
        "limit_core_num inside of compiled code",
        "a compiled program runs on all threads of its call; use it around the call",
    )

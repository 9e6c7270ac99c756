"""`torchair.scope`: the marks of `kernelmill.scope`, without options that only an NPU has."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from kernelmill import scope as own
from kernelmill.config.super_kernel_marks import HARDWARE_OPTIONS
from kernelmill.core.errors import ConfigError, ConfigTypeError
from kernelmill.core.log import warn_once


@contextmanager
def super_kernel(scope: str | None, options: str = "") -> Generator[None]:
    """`kernelmill.scope.super_kernel`. Options for the hardware of an NPU are ignored, with a
    warning for each."""
    with own.super_kernel(scope, _without_hardware(options) if options else options):
        yield


@torch.compiler.assume_constant_result
def _without_hardware(options: str) -> str:
    """Return the options that apply to a CPU, and the invalid ones."""
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
    """Limit threads to the larger number, as `kernelmill.scope.limit_threads`. ConfigError for
    invalid numbers of cores."""
    wrong = _wrong(op_aicore_num, op_vectorcore_num)
    if wrong and not torch.compiler.is_compiling():
        raise ConfigError(wrong)
    # In a trace it cannot be raised: a mark that is no number becomes an error behind it.
    count: Any = wrong or max(op_aicore_num, op_vectorcore_num)
    with own.limit_threads(count):
        yield


def _wrong(cube: object, vector: object) -> str:
    """Describe an invalid number of cores, or return ""."""
    for name, number, least in (("op_aicore_num", cube, 1), ("op_vectorcore_num", vector, 0)):
        if type(number) is not int or number < least:
            return (
                f"limit_core_num: {name} is {number!r}, and has to be a whole number from {least}"
            )
    return ""


@contextmanager
def npu_stream_switch(
    stream_tag: str, stream_priority: int = 0, enable_inner_parallel: bool = True
) -> Generator[None]:
    """`kernelmill.scope.stream_switch`. Operators of one stream follow each other, whatever
    enable_inner_parallel allows. ConfigTypeError for a value of it that is no bool."""
    _require_bool("npu_stream_switch: enable_inner_parallel", enable_inner_parallel)
    with own.stream_switch(stream_tag, stream_priority):
        yield


@contextmanager
def data_dump() -> Generator[None]:
    """`kernelmill.scope.data_dump`: with `dump_config.enable_dump`, write the data of the operators
    inside, and of those that `dump_layer` names."""
    with own.data_dump():
        yield


@contextmanager
def op_never_timeout(enable: bool = True) -> Generator[None]:
    """Do nothing, as there are no time limits. ConfigTypeError for a value that is no bool."""
    _require_bool("op_never_timeout: enable", enable)
    yield


def _require_bool(name: str, value: object) -> None:
    if not torch.compiler.is_compiling() and type(value) is not bool:
        raise ConfigTypeError(f"{name}: {value!r} is neither True nor False")

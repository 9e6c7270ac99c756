"""Marks that Dynamo traces: of the operators inside a block, and of the order of two operators."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.fx.traceback import annotate

from kernelmill.config.super_kernel_marks import (
    DUMP_KEY,
    MARK_KEY,
    STREAM_KEY,
    THREADS_KEY,
    check_range,
    check_stream,
    check_threads,
)
from kernelmill.core.errors import ConfigTypeError
from kernelmill.frontend.waits import AWAIT, RECORD
from kernelmill.frontend.waits import wait_tensor as wait_operator


@contextmanager
def super_kernel(scope: str | None, options: str = "") -> Generator[None]:
    """Launch the kernels of the operators in the `with` block together, as a super kernel.

    scope    name of the range. Blocks of one name are one range; the innermost of nested blocks
             applies; None or "" excludes operators
    options  "<name>=<value>:<name>=<value>": stream-fusion 0 or 1, strict-scope-check bypass or
             abort, feed-sync-all and debug-sync-all 0 or 1, debug-aic-num and debug-aiv-num a
             number of threads

    Raises ConfigError for a wrong argument. Outside of compiled code it only checks arguments.
    """
    if not torch.compiler.is_compiling():
        check_range(scope, options)
    with annotate({MARK_KEY: (scope or "", options)}):
        yield


@contextmanager
def stream_switch(tag: str, priority: int = 0) -> Generator[None]:
    """Run the operators in the `with` block on the stream `tag` of their super kernel, in parallel
    with independent operators of other streams. Each step of priority (-8 to 8) gives a stream 1.5
    times the threads. Raises ConfigError for a tag that is not a name.
    """
    if not torch.compiler.is_compiling():
        check_stream(tag, priority)
    with annotate({STREAM_KEY: (tag, priority)}):
        yield


def wait_tensor(t: Tensor, dep: Tensor) -> Tensor:
    """Return `t`. In a super kernel, kernels that read the result start after the kernel that makes
    `dep`, also on another stream. Elsewhere only the arguments are checked: ConfigTypeError for
    one that is not a tensor.
    """
    if torch.compiler.is_compiling():
        return wait_operator(t, dep)
    given: dict[str, object] = {"t": t, "dep": dep}
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise ConfigTypeError(f"{name}: {value!r} is no tensor")
    return t


@contextmanager
def limit_threads(count: int) -> Generator[None]:
    """Run the operators in the `with` block on at most `count` threads, in compiled code and in
    eager. In a compiled graph with dynamic sizes it has no effect, and a warning says so.
    Raises ConfigError for an invalid number of threads.
    """
    if torch.compiler.is_compiling():
        with annotate({THREADS_KEY: count}):
            yield
        return
    check_threads(count)
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def data_dump() -> Generator[None]:
    """Select the operators in the `with` block for the dump of `config.dump_config`, which without
    such blocks writes all. It needs `config.dump_config.enable_dump`."""
    with annotate({DUMP_KEY: True}):
        yield


def record() -> Tensor:
    """Return a mark of this point of the current stream, for `wait`."""
    return RECORD()


def wait(tensors: Sequence[Tensor]) -> None:
    """Delay later kernels of the current stream of a super kernel until all kernels before these
    marks of `record`, or those that make these tensors, are done. Elsewhere it has no effect."""
    AWAIT(list(tensors))

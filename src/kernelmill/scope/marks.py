"""Marks that Dynamo traces through: of the operators inside a block, of the order of two."""

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
    """Make one launch, a super kernel, of the kernels of the operators in the `with` block.

    scope    name of the range. Blocks of one name are one range; the innermost of nested blocks
             applies; None or "" takes operators out
    options  "<name>=<value>:<name>=<value>": stream-fusion 0 or 1, strict-scope-check bypass or
             abort, feed-sync-all and debug-sync-all 0 or 1, debug-aic-num and debug-aiv-num a
             number of threads

    ConfigError for a wrong argument. Outside of compiled code only the arguments are checked.
    """
    if not torch.compiler.is_compiling():
        check_range(scope, options)
    with annotate({MARK_KEY: (scope or "", options)}):
        yield


@contextmanager
def stream_switch(tag: str, priority: int = 0) -> Generator[None]:
    """Run the operators in the `with` block, in a super kernel, on the stream `tag`, in parallel
    with those of other streams that they do not depend on. Each step of priority (-8 to 8) gives a
    stream 1.5 times the threads. ConfigError for a tag that is no name.
    """
    if not torch.compiler.is_compiling():
        check_stream(tag, priority)
    with annotate({STREAM_KEY: (tag, priority)}):
        yield


def wait_tensor(t: Tensor, dep: Tensor) -> Tensor:
    """Return `t`. In a super kernel, what reads the result begins when the kernel that makes `dep`
    is done, also on another stream. Elsewhere only the arguments are checked: ConfigTypeError for
    one that is no tensor.
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
    eager. In a compiled graph with sizes that vary it has no effect, and a warning says so.
    ConfigError for what is no number of threads.
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
    """Select the operators in the `with` block for the dump of `config.dump_config`; without any
    such block all are written. It needs `config.dump_config.enable_dump`."""
    with annotate({DUMP_KEY: True}):
        yield


def record() -> Tensor:
    """Return a mark of this point of the current stream, for `wait`."""
    return RECORD()


def wait(tensors: Sequence[Tensor]) -> None:
    """Delay what follows on the current stream, in a super kernel, until all before these marks of
    `record`, or what makes these tensors, is done. Elsewhere operators follow each other anyway."""
    AWAIT(list(tensors))

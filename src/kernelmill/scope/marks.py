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
    """The kernels of the operators inside become one launch, a super kernel.

    `with` blocks of one name are one range, and the inner one of nested blocks counts; `None` or
    "" takes operators out. `options` is "<name>=<value>:<name>=<value>": stream-fusion 0 or 1,
    strict-scope-check bypass or abort, feed-sync-all and debug-sync-all 0 or 1, debug-aic-num and
    debug-aiv-num the most threads. Outside of compiled code this does nothing but check its
    arguments: ConfigError for one that is wrong.
    """
    if not torch.compiler.is_compiling():
        check_range(scope, options)
    with annotate({MARK_KEY: (scope or "", options)}):
        yield


@contextmanager
def stream_switch(tag: str, priority: int = 0) -> Generator[None]:
    """The operators inside, within a range, run on the stream `tag`: beside those of other streams
    that they do not depend on. The higher the priority, the larger the stream's part of the team
    (by one half for each step). ConfigError for a tag that is no name.
    """
    if not torch.compiler.is_compiling():
        check_stream(tag, priority)
    with annotate({STREAM_KEY: (tag, priority)}):
        yield


def wait_tensor(t: Tensor, dep: Tensor) -> Tensor:
    """`t`; in a super kernel, what reads the result begins when the kernel that makes `dep` is
    done, though on another stream. Outside of a range, and of compiled code, this does nothing but
    check that both are tensors: ConfigTypeError.
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
    """The operators inside run on at most so many threads, in and out of compiled code. In compiled
    code it is a range of launches whose sizes are known; where sizes vary it does nothing, with a
    warning. ConfigError for what is no number of threads.
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
    """The operators inside are among those that `config.dump_config` writes, which are all where no
    operator is chosen. It needs `config.dump_config.enable_dump`."""
    with annotate({DUMP_KEY: True}):
        yield


def record() -> Tensor:
    """A point of the current stream that `wait` knows: what was there before has to be done."""
    return RECORD()


def wait(tensors: Sequence[Tensor]) -> None:
    """In a super kernel, what comes next on the current stream begins when what was recorded, or
    what makes these tensors, is done. Elsewhere operators follow each other in any case."""
    AWAIT(list(tensors))

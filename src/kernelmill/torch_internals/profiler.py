"""torch.profiler: callbacks at the start and stop of a session."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.autograd.profiler as torch_profiler

from kernelmill.torch_internals.registry import internal

_START, _STOP = "_run_on_profiler_start", "_run_on_profiler_stop"
_RUNNING = "_is_profiler_enabled"


@internal(
    "profiler.hooks",
    reason="showing kernels as ranges in sessions of torch.profiler",
    fallback="kernels have no ranges in torch.profiler",
)
def _hooks() -> tuple[str, str] | None:
    functions = [getattr(torch_profiler, name) for name in (_START, _STOP)]
    right = all(map(callable, functions)) and isinstance(getattr(torch_profiler, _RUNNING), bool)
    return (_START, _STOP) if right else None


def listen(started: Callable[[], None], stopped: Callable[[], None]) -> bool | None:
    """Register callbacks around every session from now on. Return whether a session runs; None
    where torch has no such hooks."""
    names = _hooks.get()
    if names is None:
        return None
    for name, tell in zip(names, (started, stopped), strict=True):
        setattr(torch_profiler, name, _before(getattr(torch_profiler, name), tell))
    return bool(getattr(torch_profiler, _RUNNING))


def _before(function: Callable[..., Any], tell: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        tell()
        return function(*args, **kwargs)

    return told

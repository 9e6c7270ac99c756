"""Torch's dispatcher: modes, autocast, gradients, versions of tensors, precision."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.workers import Workers
from kernelmill.torch_internals.registry import disable_modes, internal


@dataclass(frozen=True)
class ModeStacks:
    """The active modes, outermost first, and their `counts`, which are quicker."""

    functions: Callable[[], Sequence[Any]]
    dispatchers: Callable[[], Sequence[Any]]
    counts: tuple[Callable[[], int], Callable[[], int]]
    default_device: type


@internal(
    "dispatch.mode_stacks",
    reason="telling whether a mode of torch would see each operator of a cached method",
    fallback="methods behind cache_compile are called as under a mode: their own code runs",
)
def mode_stacks() -> ModeStacks | None:
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    counts = (torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack)
    stacks = _get_current_function_mode_stack, _get_current_dispatch_mode_stack
    with torch.device("cpu"):
        seen = stacks[0]()
        if not isinstance(seen[-1], DeviceContext) or counts[0]() != len(seen):
            return None
    if len(stacks[1]()) != counts[1]():
        return None
    return ModeStacks(*stacks, counts, DeviceContext)


def active_modes() -> list[Any] | None:
    """Return the active modes that see each operator: function modes except that of a default
    device, then dispatch modes. None where unknown."""
    stacks = mode_stacks.get()
    if stacks is None:
        return None
    found: list[Any] = []
    functions, dispatchers = stacks.counts
    if functions():
        found += [m for m in stacks.functions() if type(m) is not stacks.default_device]
    if dispatchers():
        found += stacks.dispatchers()
    return found


@internal(
    "dispatch.precision",
    reason="reading at each call how exactly float32 may be multiplied",
    fallback="read through torch.backends, which takes 2 us longer",
)
def _precision() -> Callable[[str, str], str] | None:
    getter: Callable[[str, str], str] = torch._C._get_fp32_precision_getter
    backends: Any = torch.backends.mkldnn
    public = [getattr(backends, operator).fp32_precision for operator in ("matmul", "conv", "rnn")]
    found = [getter("mkldnn", operator) for operator in ("matmul", "conv", "rnn")]
    return getter if found == public else None


def float32_precision(operator: str) -> str:
    """Return oneDNN's setting for "matmul", "conv" or "rnn": "none", "ieee", "tf32" or "bf16"."""
    getter = _precision.get()
    if getter is not None:
        return getter("mkldnn", operator)
    backends: Any = torch.backends.mkldnn
    return str(getattr(backends, operator).fp32_precision)


@internal(
    "dispatch.increment_version",
    reason="telling autograd, in a tenth of a microsecond, that an argument is written to",
    fallback="torch.autograd.graph.increment_version tells it",
)
def _increment_version() -> Callable[[Iterable[Any]], None] | None:
    function = torch._C._increment_version
    sample = torch.empty(0)
    before = sample._version
    function([sample])
    return function if sample._version == before + 1 else None


def version_counter() -> Callable[[Iterable[Any]], None]:
    """Return a function that bumps tensors' versions. RuntimeError or TypeError for others."""
    return _increment_version.get() or torch.autograd.graph.increment_version


@dataclass(frozen=True)
class _Modes:
    set_grad: Callable[[bool], Any]
    any_autocast: Callable[[], bool]
    no_autocast: Callable[[], AbstractContextManager[Any]]


@internal(
    "dispatch.grad_and_autocast",
    reason="leaving autograd and autocast out of a program's ATen calls without context managers",
    fallback="torch.no_grad and torch.autocast do it, some microseconds a call",
)
def _grad_and_autocast() -> _Modes | None:
    modes = _Modes(
        torch._C._set_grad_enabled, torch._C._is_any_autocast_enabled, torch._C._DisableAutocast
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = modes.any_autocast()
        with modes.no_autocast():
            hidden = torch.is_autocast_enabled("cpu")
    return modes if inside and not hidden else None


@contextmanager
def _without_autocast() -> Generator[None]:
    with torch.autocast("cpu", enabled=False):
        yield


def any_autocast() -> bool:
    """Return whether autocast is on."""
    modes = _grad_and_autocast.get()
    return modes.any_autocast() if modes is not None else torch.is_autocast_enabled("cpu")


def plain_calls(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function to run without autograd and autocast."""
    modes = _grad_and_autocast.get()
    if modes is None:

        def publicly(*args: Any) -> Any:
            with torch.no_grad(), _without_autocast():
                return run(*args)

        return publicly
    set_grad, any_on, off = modes.set_grad, modes.any_autocast, modes.no_autocast
    is_grad_enabled = torch.is_grad_enabled

    def directly(*args: Any) -> Any:
        grad = is_grad_enabled()
        set_grad(False)
        try:
            if any_on():
                with off():
                    return run(*args)
            return run(*args)
        finally:
            set_grad(grad)

    return directly


def outside_modes(function: Callable[[], Any]) -> Any:
    """Call a function where no mode of torch is active; return its result."""
    disable = disable_modes.get()
    if disable is not None:
        with disable():
            return function()
    grad = torch.is_grad_enabled()

    def apart() -> Any:
        with torch.set_grad_enabled(grad):
            return function()

    # Context variables of the caller, such as torch's, hold there too.
    context = copy_context()
    with Workers(1) as workers:
        (found,) = workers.results([partial(context.run, apart)])
    return found


@internal(
    "dispatch.plain_subclass",
    reason="taking the memory of a tensor's subclass without running the subclass's code",
    fallback="compiled programs refuse arguments that are subclasses of torch.Tensor",
)
def _plain_subclass() -> Callable[[], AbstractContextManager[Any]] | None:
    class Sample(torch.Tensor):
        pass

    guard = torch._C.DisableTorchFunctionSubclass
    with guard():
        plain = torch.ones(1).as_subclass(Sample).detach().as_subclass(torch.Tensor)
    return guard if type(plain) is torch.Tensor else None


def plain_memory(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the memory of a subclass's tensor as a plain tensor; None where torch cannot."""
    guard = _plain_subclass.get()
    if guard is None:
        return None
    with guard():
        return tensor.detach().as_subclass(torch.Tensor)

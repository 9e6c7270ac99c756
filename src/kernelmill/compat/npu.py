"""`torch.npu`: the device of a process, its streams and events, its memory.

The CPU computes while it is called, so every stream has always finished, and waits do nothing.
Times between events are those of the clock. In compiled code, within a super kernel, streams and
events are those of `kernelmill.scope`. Memory is that of the process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from types import ModuleType
from typing import Any

import torch
from torch.fx.traceback import annotate

from kernelmill.compat.devices import NAME, is_npu
from kernelmill.config.super_kernel_marks import STREAM_KEY
from kernelmill.core import knobs
from kernelmill.core.errors import InputError
from kernelmill.core.log import warn_once
from kernelmill.frontend.waits import AWAIT, RECORD
from kernelmill.torch_internals.devices import can_seed

_current = {"device": 0}
_pools = count(1)


def device_count() -> int:
    """Return the number of processes of the job on this machine; all devices are the CPU."""
    return knobs.LOCAL_WORLD_SIZE.get() or 1


def current_device() -> int:
    """Return the index that `set_device` chose."""
    return _current["device"]


def set_device(device: Any) -> None:
    """Choose the device with this index, which only affects `current_device`: all indices are the
    CPU. InputError for an invalid index."""
    index = device if isinstance(device, int) else torch.device(device).index or 0
    if not is_npu(device) or index < 0:
        raise InputError(f"torch.npu.set_device: {device!r} names no npu")
    _current["device"] = index


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset `max_memory_allocated` to the current value."""
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return free and total bytes of the machine's memory."""
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")


def _memory(field: str, device: Any = None) -> int:
    with open("/proc/self/status") as file:
        found = next(line for line in file if line.startswith(f"{field}:"))
    return int(found.split()[1]) * 1024


def graph_pool_handle() -> tuple[int, int]:
    """Return a new name for memory of graphs; captures have memory of their own."""
    return 0, next(_pools)


def set_deterministic_level(level: int) -> None:
    """Set `torch.use_deterministic_algorithms`, on from level 1. InputError for a level that is
    none of 0 to 3."""
    if level not in (0, 1, 2, 3):
        raise InputError(f"set_deterministic_level: {level!r} is no level; the levels are 0 to 3")
    if level > 1:
        warn_once(
            f"level {level} of torch.npu.set_deterministic_level",
            "as with level 1 a call gives the same bits each time; that equal rows in other places "
            "or batches do so is not promised",
        )
    torch.use_deterministic_algorithms(level > 0)


@torch.compiler.assume_constant_result
def _tag() -> str:
    return f"npu_{next(_pools)}"


class _Done:
    def synchronize(self) -> None:
        """Do nothing, as all work is done already."""

    def query(self) -> bool:
        """Return True, as all work is done."""
        return True


class Stream(_Done):
    """A stream whose work is always done; a lower `priority` comes first."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.priority = priority
        self.text = str(priority)  # which is a constant in traces for all sizes too
        self.tag = _tag()
        self._index = current_device()

    @property
    def device(self) -> torch.device:
        """The device that the stream belongs to."""
        return torch.device(NAME, self._index)

    def wait_stream(self, stream: Stream) -> None:
        """Do nothing, as its work is done already."""

    def wait_event(self, event: Event) -> None:
        """Do nothing, as its work is done already."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event now and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event


class Event(_Done):
    """A point of time. `elapsed_time` is in milliseconds; InputError for events without timing or
    that were never recorded."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.enable_timing = enable_timing
        self._seconds: float | None = None
        self.tag = _tag()

    def record(self, stream: Stream | None = None) -> None:
        """Record the time; in compiled code, the place in the current stream."""
        if torch.compiler.is_compiling():
            RECORD(tag=self.tag)
        else:
            self._seconds = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Do nothing; in compiled code, let the current stream wait for the event."""
        if torch.compiler.is_compiling():
            AWAIT([], tag=self.tag)

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to the other one."""
        if not (self.enable_timing and end_event.enable_timing):
            raise InputError("elapsed_time: both events need enable_timing=True")
        if self._seconds is None or end_event._seconds is None:
            raise InputError("elapsed_time: both events must be recorded first")
        return (end_event._seconds - self._seconds) * 1000


_DEFAULT_STREAM = Stream()
_entered = [_DEFAULT_STREAM]


def current_stream(device: Any = None) -> Stream:
    """Return the stream that was entered last."""
    return _entered[-1]


def default_stream(device: Any = None) -> Stream:
    """Return the initial stream."""
    return _DEFAULT_STREAM


def set_stream(stream: Stream) -> None:
    """Enter a stream for good."""
    _entered[-1] = stream


@contextmanager
def stream(stream: Stream | None) -> Generator[None]:
    """Enter a stream for a block."""
    if torch.compiler.is_compiling():
        if stream is None:
            yield
            return
        with annotate({STREAM_KEY: (stream.tag, -int(stream.text))}):
            yield
        return
    _entered.append(stream or _entered[-1])
    try:
        yield
    finally:
        _entered.pop()


@contextmanager
def device(device: Any) -> Generator[None]:
    """Choose a device for a block."""
    before = current_device()
    set_device(device)
    try:
        yield
    finally:
        set_device(before)


class _RuntimeConfig:
    """`torch.npu.config`: options of Ascend's runtime, none of which has an effect here."""

    def __setattr__(self, name: str, value: object) -> None:
        warn_once(f"torch.npu.config.{name}", "it is an option of Ascend's runtime")


def _autocast(enabled: bool = True, dtype: Any = torch.float16, cache_enabled: bool = True) -> Any:
    return torch.autocast(NAME, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


_ANSWERS: Mapping[str, Any] = {
    "is_available": True, "is_initialized": True, "is_bf16_supported": True,
    "init": None, "synchronize": None, "empty_cache": None,
    "get_device_name": "CPU (kernelmill)",
    "get_amp_supported_dtype": [torch.float16, torch.bfloat16]
}  # fmt: skip
"""Functions with a constant answer: all work is done already, and no memory is cached."""

_NO_EFFECT: Mapping[str, str] = {
    "set_compile_mode": "operators are compiled when they are first met",
    "set_option": "they are options of Ascend's runtime",
}
"""Functions that do nothing but warn."""

_OTHERS: Mapping[str, Any] = {
    "memory_allocated": partial(_memory, "VmRSS"),
    "max_memory_allocated": partial(_memory, "VmHWM"),  # since reset_peak_memory_stats
    **dict.fromkeys(("manual_seed", "manual_seed_all"), torch.default_generator.manual_seed),
    "get_rng_state": lambda device=NAME: torch.get_rng_state(),
    "set_rng_state": lambda state, device=NAME: torch.set_rng_state(state),
}
"""Functions of the process, and of the CPU's generator."""


def _answering(value: Any) -> Any:
    return lambda *args, **options: value  # type: ignore[reportUnknownLambdaType]


def _without_effect(name: str, reason: str) -> Any:
    return lambda *args, **options: warn_once(f"torch.npu.{name}", reason)  # type: ignore[reportUnknownLambdaType]


def fill(module: ModuleType) -> None:
    """Put the functions and classes of this file into the module `torch.npu`."""
    functions = (
        device_count, current_device, set_device, reset_peak_memory_stats, mem_get_info,
        graph_pool_handle, set_deterministic_level, Stream, Event, current_stream, default_stream,
        set_stream, stream, device
    )  # fmt: skip
    vars(module).update(
        {function.__name__: function for function in functions},
        **{name: _answering(value) for name, value in _ANSWERS.items()},
        **{name: _without_effect(name, reason) for name, reason in _NO_EFFECT.items()},
        **_OTHERS,
        config=_RuntimeConfig(),
    )
    can_seed(module)


def fill_amp(module: ModuleType) -> None:
    """Put autocast and GradScaler into the module `torch.npu.amp`."""
    names: Any = module
    names.autocast, names.GradScaler = _autocast, partial(torch.amp.GradScaler, "cpu")

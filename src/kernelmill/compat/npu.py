"""`torch.npu`: the device of a process, its streams and events.

The CPU computes while it is called, so every stream has done its work at any time, and waiting is
nothing. Times between events are those of the clock.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from types import ModuleType
from typing import Any

import torch

from kernelmill.compat.devices import NAME, is_npu
from kernelmill.compat.warned import warn_once
from kernelmill.core import knobs
from kernelmill.core.errors import InputError
from kernelmill.torch_internals.devices import can_seed

_current = {"device": 0}
_pools = count(1)


def device_count() -> int:
    """A device for each process of the job on this machine; all of them are the CPU."""
    return knobs.LOCAL_WORLD_SIZE.get() or 1


def is_available() -> bool:
    """Scripts that ask may go on: the device is the CPU."""
    return True


def current_device() -> int:
    """The index that `set_device` chose."""
    return _current["device"]


def set_device(device: Any) -> None:
    """Choose the device with this index, which changes nothing but what `current_device` says.
    InputError where there are not so many."""
    if not is_npu(device):
        raise InputError(f"torch.npu.set_device: {device!r} names no npu")
    index = device if isinstance(device, int) else torch.device(device).index or 0
    if not 0 <= index < device_count():
        raise InputError(
            f"torch.npu.set_device: there is no device {index}; {device_count()} are there, one "
            "for each process of the job on this machine (LOCAL_WORLD_SIZE)"
        )
    _current["device"] = index


def get_device_name(device: Any = None) -> str:
    """What the device is: the CPU."""
    return "CPU (kernelmill)"


def synchronize(device: Any = None) -> None:
    """Everything is done already."""


def empty_cache() -> None:
    """Nothing is kept for later calls that other programs could use."""


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory of graphs, each time another one; captures have memory of their own."""
    return 0, next(_pools)


def init() -> None:
    """Nothing to start."""


def is_initialized() -> bool:
    """From the beginning."""
    return True


def is_bf16_supported() -> bool:
    """bfloat16 is computed in float32."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types for `torch.autocast`."""
    return [torch.float16, torch.bfloat16]


def manual_seed(seed: int) -> None:
    """Seed the generator, which is the CPU's."""
    torch.default_generator.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """The same; torch.manual_seed calls it, too."""
    torch.default_generator.manual_seed(seed)


def get_rng_state(device: Any = NAME) -> torch.Tensor:
    """State of the generator, which is the CPU's."""
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = NAME) -> None:
    """Set the state of the generator."""
    torch.set_rng_state(state)


def set_compile_mode(jit_compile: bool = False) -> None:
    """Without effect."""
    warn_once("torch.npu.set_compile_mode", "operators are compiled when they are first met")


def set_option(options: dict[str, Any]) -> None:
    """Without effect."""
    warn_once("torch.npu.set_option", "they are options of Ascend's runtime")


class Stream:
    """A stream whose work is always done."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.priority = priority
        self._index = current_device()

    @property
    def device(self) -> torch.device:
        """The device that it belongs to."""
        return torch.device(NAME, self._index)

    def synchronize(self) -> None:
        """Everything is done already."""

    def query(self) -> bool:
        """Whether all is done: always."""
        return True

    def wait_stream(self, stream: Stream) -> None:
        """Its work is done already."""

    def wait_event(self, event: Event) -> None:
        """What it stands for is done already."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that is recorded now."""
        event = Event() if event is None else event
        event.record(self)
        return event


class Event:
    """A point of time. `elapsed_time` is in milliseconds; InputError for events without timing or
    that were never recorded."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.enable_timing = enable_timing
        self._seconds: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Now."""
        self._seconds = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """What it stands for is done already."""

    def synchronize(self) -> None:
        """What it stands for is done already."""

    def query(self) -> bool:
        """Whether what it stands for is done: always."""
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to the other one."""
        if not (self.enable_timing and end_event.enable_timing):
            raise InputError("elapsed_time: both events need enable_timing=True")
        if self._seconds is None or end_event._seconds is None:
            raise InputError("elapsed_time: both events must be recorded first")
        return (end_event._seconds - self._seconds) * 1000


_DEFAULT_STREAM = Stream()
_entered = [_DEFAULT_STREAM]


def current_stream(device: Any = None) -> Stream:
    """The stream that was entered last."""
    return _entered[-1]


def default_stream(device: Any = None) -> Stream:
    """The stream that is there from the beginning."""
    return _DEFAULT_STREAM


def set_stream(stream: Stream) -> None:
    """Enter it for good."""
    _entered[-1] = stream


@contextmanager
def stream(stream: Stream | None) -> Generator[None]:
    """Enter it for a block."""
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
    """`torch.npu.config`: options of Ascend's runtime, none of which means anything here."""

    def __setattr__(self, name: str, value: object) -> None:
        warn_once(f"torch.npu.config.{name}", "it is an option of Ascend's runtime")


def _autocast(enabled: bool = True, dtype: Any = torch.float16, cache_enabled: bool = True) -> Any:
    return torch.autocast(NAME, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def fill(module: ModuleType) -> None:
    """Put all of this into the module `torch.npu`."""
    for function in (
        device_count, is_available, current_device, set_device, get_device_name, synchronize,
        empty_cache, graph_pool_handle, init, is_initialized, is_bf16_supported,
        get_amp_supported_dtype, manual_seed, manual_seed_all, get_rng_state, set_rng_state,
        set_compile_mode, set_option, Stream, Event, current_stream, default_stream, set_stream,
        stream, device,
    ):  # fmt: skip
        setattr(module, function.__name__, function)
    extra: Any = module
    extra.config = _RuntimeConfig()
    can_seed(module)


def fill_amp(module: ModuleType) -> None:
    """Put what there is into the module `torch.npu.amp`."""
    names: Any = module
    names.autocast, names.GradScaler = _autocast, _grad_scaler


def _grad_scaler(**options: Any) -> Any:
    return torch.amp.GradScaler("cpu", **options)

"""Devices and backends of torch, for scripts that name another one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from kernelmill.torch_internals.registry import internal

UNNAMED = "privateuseone"
"""Torch's name of the backend of other packages while none of them has named it."""


@internal(
    "devices.context",
    reason="`with torch.device(...)` under the name of another device",
    fallback="torch refuses such devices there and as default devices",
)
def device_context() -> type | None:
    """Return the class of the mode behind a default device."""
    from torch.utils._device import DeviceContext

    made = DeviceContext(torch.device("cpu"))
    return DeviceContext if made.device == torch.device("cpu") else None


@internal(
    "devices.backend_name",
    reason="seeing that another package has given torch a backend already",
    fallback="torch's own error says so",
)
def _backend_name() -> Callable[[], str] | None:
    function: Any = torch._C._get_privateuse1_backend_name
    return function if isinstance(function(), str) else None


def backend_name() -> str:
    """Return the name of the backend that another package has given torch; `UNNAMED` without one,
    or where unknown."""
    function = _backend_name.get()
    return UNNAMED if function is None else function()


@internal(
    "devices.accelerator",
    reason="`torch.distributed.barrier`, which asks for the accelerator of a backend with a name",
    fallback="it raises torch's error",
)
def _accelerator() -> Any:
    module: Any = torch._C
    return module if callable(module._get_accelerator) else None


def deny_accelerator() -> None:
    """Have torch find none."""
    found = _accelerator.get()
    if found is not None:
        found._get_accelerator = lambda check=None: torch.device("cpu")


def can_seed(module: ModuleType) -> None:
    """Mark a device's module as one whose random numbers can be seeded here: torch asks it by a
    private name."""
    extra: Any = module
    extra._is_in_bad_fork = lambda: False


@internal(
    "devices.record_stream",
    reason="`Tensor.record_stream` in compiled code with a stream of another device's module",
    fallback="Dynamo refuses such a call",
)
def _record_stream() -> Any:
    from torch._dynamo.variables.tensor import TensorVariable

    takes = inspect.signature(TensorVariable.method_record_stream).parameters
    return TensorVariable if list(takes) == ["self", "tx", "stream"] else None


def skip_record_stream() -> None:
    """Have traces ignore `record_stream`: memory is in use while its tensor lives."""
    found = _record_stream.get()
    if found is not None:
        from torch._dynamo.variables import ConstantVariable

        found.method_record_stream = lambda self, tx, stream: ConstantVariable.create(None)


@internal(
    "devices.default_store",
    reason="the processes of a machine sharing a build of static kernels",
    fallback="each process builds all static kernels",
)
def default_store() -> Any:
    """Return the function that gives the store of the default process group."""
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store

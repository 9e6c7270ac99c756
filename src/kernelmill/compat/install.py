"""`install`: sets up torch and the modules of a process for a script for torch_npu."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from functools import cache, wraps
from typing import Any

import torch
from torch.utils.backend_registration import rename_privateuse1_backend

from kernelmill.backend import get_npu_backend
from kernelmill.compat import npugraph_ex
from kernelmill.compat.devices import NAME, map_devices
from kernelmill.compat.folders import propose_settings
from kernelmill.compat.modules import install_modules
from kernelmill.core.errors import InputError
from kernelmill.torch_internals.devices import (
    UNNAMED,
    backend_name,
    deny_accelerator,
    skip_record_stream,
)  # fmt: skip

_STARTED = os.path.join(os.path.dirname(__file__), "started")
"""Modules that Python finds in processes which multiprocessing starts, and which call `install`."""


@cache
def install() -> None:
    """Provide `torch_npu` and `torchair` in this process, with the CPU as the device "npu".

    It changes torch for the whole process and cannot be undone. Call it before a script imports
    them. InputError where the real torch_npu, or another backend, is registered already.
    """
    taken = backend_name()
    if taken != UNNAMED:
        raise InputError(
            f"torch has the device {taken!r} of another package already: kernelmill runs scripts "
            "for torch_npu in a process that has not imported it"
        )
    propose_settings()
    rename_privateuse1_backend(NAME)
    install_modules()
    map_devices()
    _map_others()
    sys.path.append(_STARTED)


def _map_others() -> None:
    """Wrap torch's functions that take the name of a backend, or ask for an accelerator."""
    torch_names: Any = torch
    # There is none whose streams Dynamo, autograd or a DataLoader would have to wait for.
    torch_names.accelerator.is_available = lambda: False
    torch_names.accelerator.current_accelerator = lambda check_available=False: None
    torch_names.accelerator.device_count = lambda: 0
    deny_accelerator()
    original = torch.compile
    skip_once = cache(skip_record_stream)

    @wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        skip_once()
        if kwargs.get("backend") == NAME:
            kwargs["backend"] = get_npu_backend()
        elif kwargs.get("backend") == npugraph_ex.NAME:
            options, mode = kwargs.pop("options", None), kwargs.pop("mode", None)
            kwargs["backend"] = npugraph_ex.by_name(options, mode)
        return original(*args, **kwargs)

    torch_names.compile = compile
    if torch.distributed.is_available() and torch.distributed.is_gloo_available():
        torch.distributed.Backend.register_backend("hccl", _gloo, devices=["cpu"])


def _gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return torch.distributed.ProcessGroupGloo(store, rank, size, timeout=timeout)

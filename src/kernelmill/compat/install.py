"""`install`: sets up torch, the folders and the modules of a process for a script for torch_npu.

The folders that TorchAir and MindSpore use: `kernel_meta` and `.torchair_cache` in the working
directory.

They contain machine code that will run, and a working directory may have come with an archive or a
checkout. So such a folder is used only if it is made now, or if an earlier run of this user made
it, according to a list in `cache_home()` by device and inode, and a random text in it: file systems
give the inode of a removed folder to the next one.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import warnings
from contextlib import suppress
from datetime import timedelta
from functools import cache, wraps
from typing import Any

import torch
from torch.utils.backend_registration import rename_privateuse1_backend

from kernelmill.backend import get_npu_backend
from kernelmill.compat import npugraph_ex
from kernelmill.compat.devices import NAME, map_devices
from kernelmill.compat.modules import install_modules
from kernelmill.compat.warned import warn_once
from kernelmill.core import knobs
from kernelmill.core.cache_home import cache_home
from kernelmill.core.errors import InputError
from kernelmill.core.knobs import Knob
from kernelmill.core.log import configure
from kernelmill.torch_internals.devices import (
    UNNAMED,
    backend_name,
    deny_accelerator,
    skip_record_stream,
)

KERNEL_META = "kernel_meta"
METHODS = ".torchair_cache"
LIST = "run_folders"
"""File in `cache_home()`: a line "DEVICE:INODE:MARK PATH" for each folder that a run made."""

MARK = ".made_by_run"
"""File in such a folder that holds its mark, which nobody else can know."""

_MARK_BYTES = 16
_LOGS = {"0": "+all", "1": "all", "2": "", "3": "-all", "4": "-all"}


def propose_settings() -> None:
    """Propose TorchAir's folders and logs, where no variable of ours sets others."""
    _propose(knobs.KERNEL_META, KERNEL_META)
    named = knobs.TORCHAIR_CACHE_HOME.get()
    if named:
        knobs.CACHE_HOME.propose(os.path.abspath(named))
    _propose(knobs.CACHE_HOME, METHODS)
    wanted = knobs.TNG_LOG_LEVEL.get()
    if wanted and wanted not in _LOGS:
        warn_once(f"TNG_LOG_LEVEL={wanted}", f"the levels are {', '.join(_LOGS)}")
    level = _LOGS.get(wanted, "")
    if level and not knobs.LOGS.get():
        knobs.LOGS.propose(level)
        configure(level)


def _propose(knob: Knob[str] | Knob[tuple[str, ...]], name: str) -> None:
    if knob.get():
        return
    path = os.path.abspath(name)
    if _made_by_a_run(path):
        knob.propose(path)
    else:
        warnings.warn(
            f"{path} is not used, since it was not made by `kernelmill run`: it may have come with "
            f"an archive, and what is in it would run. To use it set {knob.name}={name}",
            UserWarning,
            stacklevel=2,
        )


def _made_by_a_run(path: str) -> bool:
    """Make the folder, or return whether the list has it. False where it cannot be made either."""
    if not os.path.lexists(path):
        with suppress(OSError):  # another run has made it meanwhile, or none can
            _make(path)
    return os.path.lexists(path) and _identity(path) in _listed()


def _make(path: str) -> None:
    """Make a folder, marked and listed before it gets its name."""
    os.makedirs(cache_home(), mode=0o700, exist_ok=True)
    folder, name = os.path.split(path)
    made = tempfile.mkdtemp(prefix=f".{name}.", dir=folder)
    try:
        with open(os.path.join(made, MARK), "w") as file:
            file.write(secrets.token_hex(_MARK_BYTES))
        with open(os.path.join(cache_home(), LIST), "a") as file:
            file.write(f"{_identity(made)} {path}\n")
        os.rename(made, path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _identity(path: str) -> str:
    found = os.lstat(path)
    return f"{found.st_dev}:{found.st_ino}:{_mark_in(path)}"


def _mark_in(path: str) -> str:
    """Return the mark in a folder; "" for none. Does not wait for a pipe of that name."""
    try:
        file = os.open(os.path.join(path, MARK), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(file, errors="replace") as opened:
        return opened.read(2 * _MARK_BYTES)


def _listed() -> set[str]:
    try:
        with open(os.path.join(cache_home(), LIST)) as file:
            return {line.split(" ", 1)[0] for line in file}
    except OSError:
        return set()


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

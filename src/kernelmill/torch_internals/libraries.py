"""Functions of torch's library and of the libraries it is linked with, by their symbols."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path


@cache
def torch_library() -> ctypes.CDLL:
    """Return libtorch_cpu, as loaded by torch."""
    # Imported here: objects can be linked where there is no torch, as under an emulator.
    import torch

    # dlsym on this handle searches libraries linked to libtorch_cpu too: libgomp, libm, libc.
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


def address_of(name: str) -> int | None:
    """Return the address of a function in torch, the C library or libm; None if missing."""
    try:
        return ctypes.cast(torch_library()[name], ctypes.c_void_p).value
    except AttributeError:
        return None

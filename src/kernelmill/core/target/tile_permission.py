"""The system's permission for this process to use the processor's tile unit.

Tiles are registers of 8 KiB a thread. Linux keeps no memory to save them in before a process has
asked for the permission, and code that touches them without it ends the process. The permission
holds for all threads of the process, later ones too, and for forked children; a program that is
executed asks anew. Source: Linux, Documentation/arch/x86/xstate.rst and uapi/asm/prctl.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import Any

_ARCH_PRCTL = 158
_GET_PERMITTED, _REQUEST = 0x1022, 0x1023
_TILE_DATA = 18

_REASONS = {
    errno.EINVAL: "this kernel cannot be asked for it (Linux can from 5.16 on)",
    errno.ENOSYS: "this kernel cannot be asked for it (Linux can from 5.16 on)",
    errno.EOPNOTSUPP: "the system does not switch it on",
    errno.EPERM: "the system forbids it (filters of system calls do)",
    errno.EACCES: "the system forbids it (filters of system calls do)",
    errno.ENOSPC: "a thread's alternate signal stack is too small to save it on",
    0: "the system agreed, and did not permit it",
}


@cache
def refusal() -> str:
    """Return the reason why this process may not use tiles; "" if it may. The system is asked at
    the first call, and its answer holds as long as the process."""
    if _permitted():
        return ""
    error = _arch_prctl(_REQUEST, _TILE_DATA)
    if not error and _permitted():
        return ""
    return _REASONS.get(error) or os.strerror(error)


def _permitted() -> bool:
    """Return whether tiles are permitted. A filter of system calls may have faked the request."""
    bits = ctypes.c_uint64(0)
    failed = _arch_prctl(_GET_PERMITTED, ctypes.addressof(bits))
    return not failed and bool(bits.value >> _TILE_DATA & 1)


def _arch_prctl(code: int, argument: int) -> int:
    """Return the number of the error; 0 without one."""
    library: Any = ctypes.CDLL(None, use_errno=True)
    call = library.syscall
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_ulong)
    call.restype = ctypes.c_long
    return ctypes.get_errno() if call(_ARCH_PRCTL, code, argument) < 0 else 0

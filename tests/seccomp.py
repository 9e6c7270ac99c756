"""A filter of system calls for a process of a test: what a sandbox refuses, this one refuses.

Source: Linux, Documentation/userspace-api/seccomp_filter.rst, uapi/linux/filter.h.
"""

from __future__ import annotations

import ctypes
import struct

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _FIRST_ARGUMENT = 0, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def refuse(number: int, first_argument: int, error: int) -> None:
    """From now on this process and its children get this error (0: an answer like success) from the
    system call of that number with that first argument. OSError where there are no filters."""
    steps = (
        (_LOAD_WORD, 0, 0, _NUMBER),
        (_JUMP_IF_EQUAL, 0, 3, number),
        (_LOAD_WORD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_IF_EQUAL, 0, 1, first_argument),
        (_RETURN, 0, 0, _ERROR | error),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    failed = libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero)
    failed = failed or libc.prctl(_SECCOMP, ctypes.c_ulong(_FILTER), program, zero, zero)
    if failed:
        raise OSError(ctypes.get_errno(), "no filter of system calls")

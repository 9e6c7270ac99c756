"""How tests load compiled kernels: wherever in memory there is room."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kernelmill.kernel.interpreter import run_kernel
from tests.emulation import emulator
from tests.forking import in_child
from tests.unit.codegen.native import Native
from tests.unit.codegen.test_tiles import TASKS, arrays, product, shapes

_PRIVATE_UNRESERVED = 0x4022
_BLOCK = 3 << 30
"""Farther than code reaches its constants."""


def scatter(hole: int) -> None:
    """Leave so many bytes of free memory above a block, and all others below it."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_uint64
    number, size = ctypes.c_int, ctypes.c_uint64
    libc.mmap.argtypes = (size, size, number, number, number, ctypes.c_int64)
    libc.munmap.argtypes = (size, size)

    def mapped(bytes: int) -> int:
        return libc.mmap(0, bytes, 0, _PRIVATE_UNRESERVED, -1, 0)

    block = mapped(_BLOCK)
    for bytes in (1 << 20, 1 << 16, 1 << 12):
        while mapped(bytes) > block:
            pass
    libc.munmap(block + _BLOCK - hole, hole)


@pytest.mark.skipif(emulator() is not None, reason="the emulator's process loads them")
def test_free_memory_may_be_far_apart() -> None:
    kernel = product(*next(shapes()))
    expected = arrays(kernel)
    run_kernel(kernel, expected)
    Native(kernel)  # what loads it is there

    def child() -> None:
        got = arrays(kernel)
        scatter(1 << 15)
        Native(kernel)(got, tasks=(0, TASKS))
        np.testing.assert_array_equal(got["y"], expected["y"])

    in_child(child)

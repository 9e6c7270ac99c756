"""Compiled kernels, called on memory: by this processor, or by the emulator of another."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import torch
from torch import Tensor

from kernelmill import codegen
from kernelmill.core.target.isa import Isa, why_not_here
from kernelmill.kernel.ir import Kernel
from kernelmill.kernel.text import print_kernel
from tests import guard_pages
from tests.emulation import Memory, emulator

_names = itertools.count()

_KEPT = 1000
_objects: dict[tuple[str, Isa], bytes] = {}
"""Those that were used last, the last one at the end."""


def runs_here(isa: Isa) -> bool:
    """Whether code for an ISA can be run, by this processor or the emulator in use."""
    return emulator() is not None or not why_not_here(isa)


def compiled_object(kernel: Kernel, isa: Isa) -> bytes:
    """The kernel's object: made once, as in use, for kernels of the same text."""
    key = print_kernel(kernel), isa
    found = _objects.pop(key, None) or codegen.compile_kernel(kernel, isa)
    _objects[key] = found
    if len(_objects) > _KEPT:
        del _objects[next(iter(_objects))]
    return found


@cache
def _jit() -> llvm.LLJIT:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # As kernels are linked in use. LLVM's other linker puts code and constants wherever there is
    # room, and ends the process where the two are too far apart.
    return llvm.create_lljit_compiler(use_jit_link=True)


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    folder = Path(torch.__file__).parent / "lib"
    return ctypes.CDLL(str(folder / "libtorch_cpu.so")), ctypes.CDLL("libm.so.6")


def _address(name: str) -> int:
    for library in _libraries():
        if hasattr(library, name):
            found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            assert found is not None
            return found
    raise LookupError(name)


def link(image: bytes, name: str) -> tuple[llvm.ResourceTracker, int]:
    """Keep the tracker as long as the address of `name` is used."""
    builder = llvm.JITLibraryBuilder().add_object_img(image).export_symbol(name)
    for symbol in codegen.external_symbols(image):
        builder.import_symbol(symbol, _address(symbol))
    tracker = builder.link(_jit(), f"library{next(_names)}")
    return tracker, tracker[name]


class MachineCode:
    """A kernel's object that can be called. Scratch memory is full of NaN before each call."""

    def __init__(self, image: bytes, name: str) -> None:
        self._image, self._name = image, name
        if emulator() is None:
            self._tracker, address = link(image, name)
            pointer, number = ctypes.c_void_p, ctypes.c_int64
            kind = ctypes.CFUNCTYPE(None, pointer, pointer, number, number, pointer)
            self.function = kind(address)

    def __call__(
        self,
        memory: Sequence[Memory],
        dims: Sequence[int],
        ranges: Sequence[tuple[int, int]],
        scratch: int = 0,
    ) -> None:
        """Run these ranges of tasks, one after the other."""
        emulated = emulator()
        if emulated is not None:
            emulated.run(self._image, self._name, memory, dims, ranges, scratch)
            return
        if guard_pages.is_on():
            guard_pages.call(self.function, memory, dims, ranges, scratch)
            return
        addresses = (x.data_ptr() if isinstance(x, Tensor) else x.ctypes.data for x in memory)
        pointers = (ctypes.c_void_p * len(memory))(*addresses)
        numbers = (ctypes.c_int64 * len(dims))(*dims)
        room = np.full(scratch + 64, 0xFF, np.uint8)
        aligned = (room.ctypes.data + 63) // 64 * 64
        for begin, end in ranges:
            self.function(pointers, numbers, begin, end, aligned)

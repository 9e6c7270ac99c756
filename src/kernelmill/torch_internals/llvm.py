"""llvmlite: its C functions, and the lock of its wrappers. Needs no torch."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.resources import files
from typing import Any

from kernelmill.core.errors import CodegenError
from kernelmill.torch_internals.registry import internal

_SAMPLE = b"define void @f() { ret void }"
_pointer, _text = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)


_PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    "ContextCreate": (_pointer, []),
    "ContextDispose": (None, [_pointer]),
    "ParseAssembly": (_pointer, [_pointer, ctypes.c_char_p, _text]),
    "VerifyModule": (ctypes.c_int, [_pointer, _text]),
    "DisposeModule": (None, [_pointer]),
    "TargetMachineEmitToMemory": (_pointer, [_pointer, _pointer, ctypes.c_int, _text]),
    "GetBufferStart": (_pointer, [_pointer]),
    "GetBufferSize": (ctypes.c_size_t, [_pointer]),
    "DisposeMemoryBuffer": (None, [_pointer]),
    "DisposeString": (None, [ctypes.c_char_p]),
}


@internal(
    "llvm.functions",
    reason="compiling in several threads at once: llvmlite's wrappers hold one lock",
    fallback="kernels are compiled one after the other, through llvmlite's wrappers",
)
def unlocked_emit() -> Callable[[str, Any, bool], bytes] | None:
    """Return the function (IR text, target machine, whether assembly is wanted) -> object or
    assembly, which takes no lock. CodegenError when LLVM refuses the text."""
    from llvmlite.utils import get_library_name

    library = ctypes.CDLL(str(files("llvmlite.binding").joinpath(get_library_name())))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, f"LLVMPY_{name}")
        function.restype, function.argtypes = result, arguments
    return _Unlocked(library).emit if _parses(library) else None


def _parses(library: Any) -> bool:
    context, message = library.LLVMPY_ContextCreate(), ctypes.c_char_p()
    module = library.LLVMPY_ParseAssembly(context, _SAMPLE, ctypes.byref(message))
    if module:
        library.LLVMPY_DisposeModule(module)
    library.LLVMPY_ContextDispose(context)
    return bool(module)


class _Unlocked:
    """llvmlite's C functions, each thread with a context and a target machine of its own."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def emit(self, text: str, machine: Any, assembly: bool) -> bytes:
        """Return the object or assembly of IR text; see `unlocked_emit`."""
        # llvmlite has no public name for the pointer that its object holds.
        target = ctypes.cast(machine._ptr, ctypes.c_void_p)
        context = self._library.LLVMPY_ContextCreate()
        try:
            module = self._parsed(context, text)
            try:
                return self._emitted(target, module, assembly)
            finally:
                self._library.LLVMPY_DisposeModule(module)
        finally:
            self._library.LLVMPY_ContextDispose(context)

    def _parsed(self, context: int, text: str) -> int:
        message = ctypes.c_char_p()
        module = self._library.LLVMPY_ParseAssembly(context, text.encode(), ctypes.byref(message))
        if not module:
            raise CodegenError(f"LLVM cannot read the generated module: {self._taken(message)}")
        return module

    def _emitted(self, machine: object, module: int, assembly: bool) -> bytes:
        library, message = self._library, ctypes.c_char_p()
        if library.LLVMPY_VerifyModule(module, ctypes.byref(message)):
            raise CodegenError(f"LLVM refuses the generated module: {self._taken(message)}")
        buffer = library.LLVMPY_TargetMachineEmitToMemory(
            machine, module, 0 if assembly else 1, ctypes.byref(message)
        )
        if not buffer:
            raise CodegenError(f"LLVM cannot emit the generated module: {self._taken(message)}")
        try:
            start, size = (
                library.LLVMPY_GetBufferStart(buffer),
                library.LLVMPY_GetBufferSize(buffer),
            )
            return ctypes.string_at(start, size)
        finally:
            library.LLVMPY_DisposeMemoryBuffer(buffer)

    def _taken(self, message: ctypes.c_char_p) -> str:
        text = (message.value or b"").decode(errors="replace").strip()
        self._library.LLVMPY_DisposeString(message)
        return text


@internal(
    "llvm.wrapper_lock",
    reason="a fork waiting for the calls that llvmlite's wrappers make, from destructors too",
    fallback="a fork during such a call can leave a child that waits when it compiles",
)
def _wrapper_lock() -> AbstractContextManager[Any]:
    lock: AbstractContextManager[Any] = sys.modules["llvmlite.binding.ffi"].lib._lock
    with lock:
        return lock


def wrapper_lock() -> AbstractContextManager[Any]:
    """Return the lock of all llvmlite wrappers; a null context while llvmlite is not imported."""
    if "llvmlite.binding.ffi" not in sys.modules:
        return nullcontext()
    return _wrapper_lock.get() or nullcontext()

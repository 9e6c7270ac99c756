"""llvmlite: its C functions, the lock of its wrappers, and mutual exclusion of calls of LLVM and
forks. Needs no torch.

Mutual exclusion of calls of LLVM and forks.

A process that forks while one of its threads is inside of LLVM leaves the child with locks of LLVM
and llvmlite that nobody releases, and with tables that are half changed. So a fork waits until
pending calls have returned, some tens of milliseconds, and no other begins meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


PATIENCE_SECONDS = 10.0
"""Longest wait of a fork: a call takes this long only where something is wrong anyway."""

_LOOK_SECONDS = 0.001


class _Calls:
    """Threads inside of calls, and threads that are about to fork.

    Both sides announce themselves before they look at the other. There is no lock of Python code,
    which Ctrl-C could leave taken (core/workers.py).
    """

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.forking: dict[int, AbstractContextManager[Any]] = {}
        """The lock of llvmlite held by each thread that forks."""

    def before_fork(self) -> None:
        """Wait for calls of other threads, and block new ones."""
        own = threading.get_ident()
        self.forking[own] = nullcontext()
        end = time.monotonic() + PATIENCE_SECONDS
        while self.inside - {own} and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        # All of llvmlite's wrappers take one lock, also those that destructors call in any thread.
        # Without it only those calls can meet a fork.
        self.forking[own] = wrapper_lock()
        self.forking[own].__enter__()

    def in_parent(self) -> None:
        """Let other threads call LLVM again."""
        self.forking.pop(threading.get_ident()).__exit__(None, None, None)

    def in_child(self) -> None:
        """Reset the state: the child has no other thread."""
        own = threading.get_ident()
        self.forking[own].__exit__(None, None, None)
        self.forking.clear()
        self.inside &= {own}


_calls = _Calls()
os.register_at_fork(
    before=_calls.before_fork,
    after_in_parent=_calls.in_parent,
    after_in_child=_calls.in_child,
)


@contextmanager
def inside_llvm() -> Generator[None]:
    """Let this thread call LLVM, and no other thread fork. Not to be nested."""
    own = threading.get_ident()
    try:
        _calls.inside.add(own)
        while _calls.forking.keys() - {own}:
            _calls.inside.discard(own)
            time.sleep(_LOOK_SECONDS)
            _calls.inside.add(own)
        yield
    finally:
        _calls.inside.discard(own)

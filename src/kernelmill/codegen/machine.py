"""LLVM itself: IR text in, an ELF object out.

llvmlite's own wrappers hold one lock around every call, so that only one thread compiles at a time.
LLVM needs no lock as long as each thread has its own context and target machine, so the three long
calls (parse, verify, emit) go to the same shared library through prototypes of ours.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from importlib.resources import files

import llvmlite
import llvmlite.binding as llvm
from llvmlite.utils import get_library_name

from kernelmill.core.errors import CodegenError
from kernelmill.core.isa import Isa
from kernelmill.core.llvm_calls import inside_llvm

OPTIMISATION = 2
"""LLVM's level for instruction selection and scheduling."""


class _Threads(threading.local):
    """Each thread's own target machines."""

    def __init__(self) -> None:
        self.machines: dict[Isa, llvm.TargetMachine] = {}


_threads = _Threads()


@cache
def llvm_version() -> str:
    """LLVM's and llvmlite's versions: they decide the bytes of every object."""
    major, minor, patch = llvm.llvm_version_info
    return f"{major}.{minor}.{patch} (llvmlite {llvmlite.__version__})"


@cache
def _library() -> ctypes.CDLL:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    library = ctypes.CDLL(str(files("llvmlite.binding").joinpath(get_library_name())))
    pointer, text = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
    prototypes: dict[str, tuple[object, list[object]]] = {
        "ContextCreate": (pointer, []),
        "ContextDispose": (None, [pointer]),
        "ParseAssembly": (pointer, [pointer, ctypes.c_char_p, text]),
        "VerifyModule": (ctypes.c_int, [pointer, text]),
        "DisposeModule": (None, [pointer]),
        "TargetMachineEmitToMemory": (pointer, [pointer, pointer, ctypes.c_int, text]),
        "GetBufferStart": (pointer, [pointer]),
        "GetBufferSize": (ctypes.c_size_t, [pointer]),
        "DisposeMemoryBuffer": (None, [pointer]),
        "DisposeString": (None, [ctypes.c_char_p]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, f"LLVMPY_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _machine(isa: Isa) -> llvm.TargetMachine:
    machine = _threads.machines.get(isa)
    if machine is None:
        kind = llvm.Target.from_triple(isa.triple)
        machine = kind.create_target_machine(
            cpu=isa.cpu,
            features=isa.llvm_features,
            opt=OPTIMISATION,
            reloc="pic",
            codemodel="small",
        )
        _threads.machines[isa] = machine
    return machine


def emit(text: str, isa: Isa, assembly: bool = False) -> bytes:
    """Compile LLVM IR text to an ELF object, or to assembly text for people to read.

    Threads compile at the same time. CodegenError when LLVM refuses the text.
    """
    with inside_llvm():
        library = _library()
        # llvmlite has no public name for the pointer that its object holds.
        machine = ctypes.cast(_machine(isa)._ptr, ctypes.c_void_p)  # pyright: ignore
        context = library.LLVMPY_ContextCreate()
        try:
            module = _parsed(library, context, text)
            try:
                return _emitted(library, machine, module, assembly)
            finally:
                library.LLVMPY_DisposeModule(module)
        finally:
            library.LLVMPY_ContextDispose(context)


def _parsed(library: ctypes.CDLL, context: int, text: str) -> int:
    message = ctypes.c_char_p()
    module = library.LLVMPY_ParseAssembly(context, text.encode(), ctypes.byref(message))
    if not module:
        raise CodegenError(f"LLVM cannot read the generated module: {_taken(library, message)}")
    return module


def _emitted(library: ctypes.CDLL, machine: object, module: int, assembly: bool) -> bytes:
    message = ctypes.c_char_p()
    if library.LLVMPY_VerifyModule(module, ctypes.byref(message)):
        raise CodegenError(f"LLVM refuses the generated module: {_taken(library, message)}")
    buffer = library.LLVMPY_TargetMachineEmitToMemory(
        machine, module, 0 if assembly else 1, ctypes.byref(message)
    )
    if not buffer:
        raise CodegenError(f"LLVM cannot emit the generated module: {_taken(library, message)}")
    try:
        start, size = library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        library.LLVMPY_DisposeMemoryBuffer(buffer)


def _taken(library: ctypes.CDLL, message: ctypes.c_char_p) -> str:
    text = (message.value or b"").decode(errors="replace").strip()
    library.LLVMPY_DisposeString(message)
    return text

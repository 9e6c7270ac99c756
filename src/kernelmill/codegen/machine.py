"""LLVM itself: IR text in, an ELF object out.

llvmlite's own wrappers hold one lock around every call, so that only one thread compiles at a time.
LLVM needs no lock as long as each thread has its own context and target machine, so the three long
calls (parse, verify, emit) go to the same shared library (torch_internals/llvm.py).
"""

from __future__ import annotations

import threading
from functools import cache

import llvmlite
import llvmlite.binding as llvm

from kernelmill.core.digest import Key
from kernelmill.core.errors import CodegenError
from kernelmill.core.generator import GENERATOR_VERSION
from kernelmill.core.target.isa import Isa
from kernelmill.core.version import ABI_VERSION
from kernelmill.torch_internals.llvm import unlocked_emit
from kernelmill.torch_internals.llvm_calls import inside_llvm

OPTIMISATION = 2
"""LLVM's level for instruction selection and scheduling."""


class _Threads(threading.local):
    """Each thread's own target machines."""

    def __init__(self) -> None:
        self.machines: dict[Isa, llvm.TargetMachine] = {}


_threads = _Threads()


@cache
def llvm_version() -> str:
    """Return LLVM's and llvmlite's versions: they decide the bytes of every object."""
    major, minor, patch = llvm.llvm_version_info
    return f"{major}.{minor}.{patch} (llvmlite {llvmlite.__version__})"


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _machine(isa: Isa) -> llvm.TargetMachine:
    machine = _threads.machines.get(isa)
    if machine is None:
        _initialise()
        kind = llvm.Target.from_triple(isa.triple)
        machine = kind.create_target_machine(
            cpu=isa.llvm_cpu,
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
        machine = _machine(isa)
        unlocked = unlocked_emit.get()
        if unlocked is not None:
            return unlocked(text, machine, assembly)
        return _emitted(text, machine, assembly)


def _emitted(text: str, machine: llvm.TargetMachine, assembly: bool) -> bytes:
    """Emit through llvmlite's wrappers."""
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
        return machine.emit_assembly(module).encode() if assembly else machine.emit_object(module)
    except RuntimeError as error:
        raise CodegenError(f"LLVM refuses the generated module: {error}") from error


def key_of(isa: Isa, **what: str) -> Key:
    """Return `what` with all other inputs that decide the compiled result."""
    return Key.of(
        {
            **what,
            "isa": str(isa),
            "generator": GENERATOR_VERSION,
            "llvm": llvm_version(),
            "abi": ABI_VERSION,
        }
    )

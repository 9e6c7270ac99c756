"""Kernel IR to machine code: LLVM IR text, and ELF objects made from it.

llvmlite's IR reader and code generator are used in this package alone.
"""

from kernelmill.codegen.compile import (
    assembly,
    compile_kernel,
    dims_function,
    emit,
    external_symbols,
    key_of,
    llvm_ir,
    llvm_version,
)  # fmt: skip
from kernelmill.codegen.targets import spin_hint
from kernelmill.core.generator import GENERATOR_VERSION

__all__ = [
    "GENERATOR_VERSION",
    "assembly",
    "compile_kernel",
    "dims_function",
    "emit",
    "external_symbols",
    "key_of",
    "llvm_ir",
    "llvm_version",
    "spin_hint",
]

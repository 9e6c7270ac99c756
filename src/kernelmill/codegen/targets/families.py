"""The choice of a processor family's code generation for an ISA."""

from __future__ import annotations

from functools import cache

from kernelmill.codegen.targets.aarch64 import AArch64
from kernelmill.codegen.targets.generic import Generic
from kernelmill.codegen.targets.x86 import X86
from kernelmill.core.target.isa import Isa

_FAMILIES = {"x86_64": X86, "aarch64": AArch64}


@cache
def answers(isa: Isa) -> Generic:
    """Return the code generation of this instruction set."""
    return _FAMILIES.get(isa.family, Generic)(isa)


def spin_hint(isa: Isa) -> tuple[str, str]:
    """Return the LLVM IR of a waiting thread's hint: a declaration and a call."""
    return answers(isa).spin_hint()

"""Store keys of compiled code."""

from __future__ import annotations

from kernelmill.codegen.machine import llvm_version
from kernelmill.core.digest import Key
from kernelmill.core.generator import GENERATOR_VERSION
from kernelmill.core.target.isa import Isa
from kernelmill.core.version import ABI_VERSION


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

"""Keys of what is compiled."""

from __future__ import annotations

from kernelmill.codegen.machine import llvm_version
from kernelmill.codegen.version import GENERATOR_VERSION
from kernelmill.core.digest import Key
from kernelmill.core.target import Target
from kernelmill.core.version import ABI_VERSION


def key_of(target: Target, **what: str) -> Key:
    """`what`, and all else that decides what is compiled from it."""
    return Key.of(
        {
            **what,
            "target": str(target),
            "generator": GENERATOR_VERSION,
            "llvm": llvm_version(),
            "abi": ABI_VERSION,
        }
    )

"""The questions that a target answers."""

from __future__ import annotations

from typing import Protocol

from kernelmill.codegen.code import Code, Reg
from kernelmill.core.dtype import DType


class Answers(Protocol):
    """Instructions of one ISA. Registers may have any number of lanes; every answer has to be
    right for all of them."""

    def dot_bytes(self, a: Reg, b: Reg, c: Reg) -> Reg:
        """c (i32) plus the four products of the bytes of a, unsigned, and of b, signed, in each
        lane; the sum wraps."""
        ...

    def dot_bf16(self, a: Reg, b: Reg, c: Reg) -> Reg:
        """c (f32) plus the products of the upper halves of a and b (i32), and then of the lower
        ones, as bf16."""
        ...

    def scale(self, p: Reg, k: Reg) -> Reg | None:
        """p * 2^floor(k) in f32, right for any k, infinities among them; None: no instruction."""
        ...

    def above_floor(self, x: Reg) -> Reg | None:
        """x - floor(x) in f32, rounded once, and 0 for infinities; None: no instruction."""
        ...

    def vector_function(self, name: str, dtype: DType, accuracy: str) -> tuple[str, int] | None:
        """A vector function of libtorch_cpu by its C name for doubles, and its lanes; None: there
        is none, and the C library's is called for each lane. `accuracy`: SLEEF's "u10", ..."""
        ...

    def streaming_fence(self, code: Code) -> None:
        """Order stores past the caches before what tells other threads of them."""
        ...

    def spin_hint(self) -> tuple[str, str]:
        """How a waiting thread tells the processor so: a declaration and a call, as LLVM IR."""
        ...

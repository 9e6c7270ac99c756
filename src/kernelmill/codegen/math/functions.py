"""The mathematical operators of the kernel IR, and how each is made."""

from __future__ import annotations

from kernelmill.codegen.code import Reg
from kernelmill.codegen.math import external


def apply(op: str, arguments: list[Reg]) -> Reg:
    """`op` of registers of one type, f32 or f64."""
    if op == "rsqrt":
        return 1.0 / arguments[0].code.intrinsic("sqrt", arguments[0])
    if op == "sigmoid":
        return 1.0 / (1.0 + external.call("exp", [-arguments[0]]))
    return external.call(op, arguments)

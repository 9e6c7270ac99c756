"""The mathematical operators of the kernel IR, and how each is made."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.codegen.arithmetic import lowest
from kernelmill.codegen.code import Code, Reg, llvm_type, suffix
from kernelmill.codegen.math import elementary, libm_fixups, special
from kernelmill.core.dtype import F32, I32, I64

Function = Callable[[Reg], Reg]

_INLINE_F32: dict[str, Function] = {
    "exp": elementary.exp,
    "exp2": elementary.exp2,
    "expm1": elementary.expm1,
    "tanh": elementary.tanh,
    "sigmoid": elementary.sigmoid,
    "log": elementary.log,
    "log1p": elementary.log1p,
    "log2": elementary.log2,
    "log10": elementary.log10,
    "sin": elementary.sin,
    "cos": elementary.cos,
    "erf": special.erf,
}
"""Written out where they are used, because models spend their time in them."""

_OWN: dict[str, Function] = {
    "erfinv": special.erfinv, "digamma": special.digamma, "i0": special.i0,
}  # fmt: skip
"""Made here for f32 and f64 because no library at hand has them; called, being long."""


def apply(op: str, arguments: list[Reg]) -> Reg:
    """`op` of registers of one type, f32 or f64."""
    x = arguments[0]
    if op == "rsqrt":
        return 1.0 / x.code.intrinsic("sqrt", x)
    if op == "nextafter":
        return nextafter(x, arguments[1])
    if op in _OWN:
        return _called(op, x, _OWN[op])
    if op in _INLINE_F32 and x.dtype == F32 and x.code.isa.has_fma:
        return _INLINE_F32[op](x)
    if op == "sigmoid":
        return libm_fixups.sigmoid(x)
    return libm_fixups.call(op, arguments)


def _called(op: str, x: Reg, function: Function) -> Reg:
    """A call of an internal function of the module, written at its first use."""
    module, type = x.code.module, x.type
    name = f"{op}.{suffix(type)}"
    if name not in module.functions:
        code = Code(module)
        result = function(Reg(code, "%x", type))
        code.line(f"ret {result.typed}")
        kind = llvm_type(type)
        module.functions[name] = code.finish(f"define internal {kind} @{name}({kind} %x) #0")
    return x.code.call(name, type, x)


def nextafter(a: Reg, b: Reg) -> Reg:
    """The neighbour of `a` towards `b`: its bits as an integer are one apart."""
    code = a.code
    integer = I32 if a.dtype == F32 else I64
    bits = a.bits_as(integer)
    away = a.compare("olt", b) ^ a.compare("olt", 0.0)
    step = code.select(away, bits.like(1), -1)
    smallest = (b.bits_as(integer) & lowest(integer)) | 1
    moved = code.select(a.compare("oeq", 0.0), smallest, bits + step).bits_as(a.dtype)
    moved = code.select(a.compare("oeq", b), b, moved)
    return code.select(a.compare("uno", b), a + b, moved)

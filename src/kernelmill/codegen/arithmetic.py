"""Arithmetic, bits, comparison and selection: one function an operator, on registers of one type.

Float operations carry no fast-math flag. Integer ones never trap: a divisor that would is replaced
before the division and its result afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.codegen.code import Code, Reg
from kernelmill.core.dtype import BOOL, F32, F64, I32, DType
from kernelmill.core.errors import CodegenError

Binary = Callable[[Reg, Reg], Reg]
Unary = Callable[[Reg], Reg]


def lowest(dtype: DType) -> int:
    """Return the most negative value of an integer type."""
    return -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0


def add(a: Reg, b: Reg) -> Reg:
    return a | b if a.dtype == BOOL else a + b


def sub(a: Reg, b: Reg) -> Reg:
    return a - b


def mul(a: Reg, b: Reg) -> Reg:
    return a & b if a.dtype == BOOL else a * b


def div(a: Reg, b: Reg) -> Reg:
    """Divide; integers truncate, and dividing by zero or overflowing gives 0."""
    return a / b if a.dtype.is_float else _divided(a, b)[0]


def rem(a: Reg, b: Reg) -> Reg:
    """Compute C's remainder, with the sign of `a`; integers give 0 where division is undefined."""
    return a.code.binary("frem", a, b) if a.dtype.is_float else _divided(a, b)[1]


def _divided(a: Reg, b: Reg) -> tuple[Reg, Reg]:
    """(quotient, remainder), truncating, 0 where C leaves them undefined."""
    code = a.code
    undefined = b.compare("eq", 0)
    if a.dtype.kind == "int":
        overflow = b.compare("eq", -1) & a.compare("eq", lowest(a.dtype))
        undefined = undefined | overflow
    divisor = code.select(undefined, 1, b)
    quotient = _quotient(a, divisor)
    rest = a - quotient * divisor
    return code.select(undefined, 0, quotient), code.select(undefined, 0, rest)


def _quotient(a: Reg, b: Reg) -> Reg:
    """a / b truncated. Vectors divide as floats with enough bits, where processors have no idiv.

    Exact: a quotient of n-bit integers that is no integer is at least 2^-n of itself away from the
    next one, more than the rounding of a float type with over n + 1 bits can bridge.
    """
    code, dtype = a.code, a.dtype
    signed = dtype.kind == "int"
    if a.lanes == 1 or dtype.bits == 64:
        return code.binary("sdiv" if signed else "udiv", a, b)
    wide = F64 if dtype.bits == 32 else F32
    to_float, to_int = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    ratio = code.convert(to_float, a, wide) / code.convert(to_float, b, wide)
    if dtype.bits == 32:
        return code.convert(to_int, ratio, dtype)
    return code.convert("trunc", code.convert("fptosi", ratio, I32), dtype)


def neg(a: Reg) -> Reg:
    return -a


def absolute(a: Reg) -> Reg:
    return a if a.dtype.kind in ("uint", "bool") else a.code.absolute(a)


def minimum(a: Reg, b: Reg) -> Reg:
    return _extreme(a, b, "olt", "smin", "umin")


def maximum(a: Reg, b: Reg) -> Reg:
    return _extreme(a, b, "ogt", "smax", "umax")


def _extreme(a: Reg, b: Reg, ordered: str, signed: str, unsigned: str) -> Reg:
    code = a.code
    if a.dtype == BOOL:
        return a & b if ordered == "olt" else a | b
    if a.dtype.is_integer:
        return code.intrinsic(signed if a.dtype.kind == "int" else unsigned, a, b)
    # One min or max instruction, which gives b when either is NaN, and then a's NaN.
    picked = code.select(a.compare(ordered, b), a, b)
    return code.select(a.compare("uno", a), a, picked)


def _float_intrinsic(name: str) -> Unary:
    def apply(a: Reg) -> Reg:
        # Rounding an integer leaves it as it is.
        return a.code.intrinsic(name, a) if a.dtype.is_float else a

    return apply


def copysign(a: Reg, b: Reg) -> Reg:
    return a.code.intrinsic("copysign", a, b)


def bit_and(a: Reg, b: Reg) -> Reg:
    return a & b


def bit_or(a: Reg, b: Reg) -> Reg:
    return a | b


def bit_xor(a: Reg, b: Reg) -> Reg:
    return a ^ b


def bit_not(a: Reg) -> Reg:
    return ~a


def shl(a: Reg, b: Reg) -> Reg:
    """Shift left: a * 2^b, 0 for a count that is negative or reaches the width."""
    code, bits = a.code, a.dtype.bits
    valid = b.compare("ult", bits)
    return code.select(valid, code.binary("shl", a, code.select(valid, b, 0)), 0)


def shr(a: Reg, b: Reg) -> Reg:
    """a / 2^b rounded down; the sign, or 0, for a count that is negative or reaches the width."""
    code, bits = a.code, a.dtype.bits
    valid = b.compare("ult", bits)
    if a.dtype.kind == "int":
        return code.binary("ashr", a, code.select(valid, b, bits - 1))
    return code.select(valid, code.binary("lshr", a, code.select(valid, b, 0)), 0)


UNARY: dict[str, Unary] = {
    "neg": neg,
    "abs": absolute,
    "sqrt": _float_intrinsic("sqrt"),
    "floor": _float_intrinsic("floor"),
    "ceil": _float_intrinsic("ceil"),
    "trunc": _float_intrinsic("trunc"),
    "round": _float_intrinsic("roundeven"),
    "not": bit_not,
}

BINARY: dict[str, Binary] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "rem": rem,
    "min": minimum,
    "max": maximum,
    "copysign": copysign,
    "and": bit_and,
    "or": bit_or,
    "xor": bit_xor,
    "shl": shl,
    "shr": shr,
}

_PREDICATES = {
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
    "lt": ("olt", "slt", "ult"),
    "le": ("ole", "sle", "ule"),
    "gt": ("ogt", "sgt", "ugt"),
    "ge": ("oge", "sge", "uge"),
}


def compare(op: str, a: Reg, b: Reg) -> Reg:
    """Compare by the type: floats ordered (NaN is only `ne`), false before true."""
    for_float, signed, unsigned = _PREDICATES[op]
    if a.dtype.is_float:
        return a.compare(for_float, b)
    return a.compare(signed if a.dtype.kind == "int" else unsigned, b)


def fma(code: Code, a: Reg, b: Reg, c: Reg) -> Reg:
    """a*b + c: floats with one rounding, integers wrapping."""
    if a.dtype.is_float:
        return code.fma(a, b, c)
    if a.dtype.is_integer:
        return a * b + c
    raise CodegenError(f"fma on {a.dtype}: it takes floats and integers")

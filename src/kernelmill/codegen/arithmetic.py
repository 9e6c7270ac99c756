"""Arithmetic, bits, comparison and selection: one function an operator, on registers of one type.

Float operations carry no fast-math flag. Integer ones never trap: a divisor that would is replaced
before the division and its result afterwards.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable

from kernelmill.codegen.code import Code, Reg, llvm_type, suffix, vector
from kernelmill.core.dtype import BF16, BOOL, F16, F32, F64, I16, I32, I64, DType
from kernelmill.core.errors import CodegenError
from kernelmill.kernel.ir import VType

Binary = Callable[[Reg, Reg], Reg]
Unary = Callable[[Reg], Reg]

_LITERAL = re.compile(r"(?:splat \(\w+ )?0x(\w{16})\)?")


def lowest(dtype: DType) -> int:
    """Return the most negative value of an integer type."""
    return -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0


def add(a: Reg, b: Reg) -> Reg:
    return a | b if a.dtype == BOOL else a + b


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
    number = _literal(b)
    if not math.isnan(number):
        # This is a where it is NaN. Of two zeros it is b: LLVM's own minimum could be either.
        return code.select(b.compare(ordered if number else f"{ordered[:2]}e", a), b, a)
    # One min or max instruction, which gives b when either is NaN, and then a's NaN.
    picked = code.select(a.compare(ordered, b), a, b)
    return code.select(a.compare("uno", a), a, picked)


def _literal(x: Reg) -> float:
    """Return the value of a literal; NaN for another register."""
    found = _LITERAL.fullmatch(x.text)
    return struct.unpack(">d", bytes.fromhex(found[1]))[0] if found else math.nan


def _float_intrinsic(name: str) -> Unary:
    def apply(a: Reg) -> Reg:
        # Rounding an integer leaves it as it is.
        return a.code.intrinsic(name, a) if a.dtype.is_float else a

    return apply


def copysign(a: Reg, b: Reg) -> Reg:
    return a.code.intrinsic("copysign", a, b)


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
    "neg": operator.neg,
    "abs": absolute,
    "sqrt": _float_intrinsic("sqrt"),
    "floor": _float_intrinsic("floor"),
    "ceil": _float_intrinsic("ceil"),
    "trunc": _float_intrinsic("trunc"),
    "round": _float_intrinsic("roundeven"),
    "not": operator.invert,
}

BINARY: dict[str, Binary] = {
    "add": add,
    "sub": operator.sub,
    "mul": mul,
    "div": div,
    "rem": rem,
    "min": minimum,
    "max": maximum,
    "copysign": copysign,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
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


def cast(value: Reg, dtype: DType, outside: str = "") -> Reg:
    """Convert `value` to `dtype`, lane by lane. `outside`: see kernel/ir.py; "" for conversions
    that are none of floats to integers."""
    source = value.dtype
    if source == dtype:
        return value
    if source == F16:
        return cast(f16_to_f32(value), dtype, outside)
    if source == BF16:
        return cast(bf16_to_f32(value), dtype, outside)
    if dtype == F16:
        return f32_to_f16(cast(value, F32))
    if dtype == BF16:
        return f32_to_bf16(cast(value, F32))
    if source.is_float:
        return _from_float(value, dtype, outside)
    return _from_integer(value, dtype)


def _from_float(value: Reg, dtype: DType, outside: str) -> Reg:
    if dtype.is_float:
        return value.code.convert("fpext" if dtype == F64 else "fptrunc", value, dtype)
    if dtype == BOOL:
        return value.compare("une", 0.0)
    if dtype.kind == "uint":
        return value.code.convert("trunc", _truncate(value, I64, outside), dtype)
    if dtype.bits < 32:
        return value.code.convert("trunc", _truncate(value, I32, outside), dtype)
    return _truncate(value, dtype, outside)


def _truncate(value: Reg, dtype: DType, outside: str) -> Reg:
    if outside == "nearest":
        return _saturated(value, dtype)
    assert outside == "lowest", outside
    limit = 2.0 ** (dtype.bits - 1)
    # The lowest integer itself is also what is given out of range, so |x| is enough to ask for.
    fits = value.code.absolute(value).compare("olt", limit)
    return value.code.select(fits, value.code.convert("fptosi", value, dtype), -int(limit))


def _saturated(value: Reg, dtype: DType) -> Reg:
    result = VType(dtype, value.lanes)
    name = f"llvm.fptosi.sat.{suffix(result)}.{suffix(value.type)}"
    value.code.module.declare(name, llvm_type(result), [value.llvm])
    return value.code.call(name, result, value)


def _from_integer(value: Reg, dtype: DType) -> Reg:
    code, source = value.code, value.dtype
    if dtype == BOOL:
        return value.compare("ne", 0)
    unsigned = source.kind in ("uint", "bool")
    if dtype.is_float:
        return code.convert("uitofp" if unsigned else "sitofp", value, dtype)
    width = 1 if source == BOOL else source.bits
    if width < dtype.bits:
        return code.convert("zext" if unsigned else "sext", value, dtype)
    if width > dtype.bits:
        return code.convert("trunc", value, dtype)
    return value.bits_as(dtype)


def bitcast(value: Reg, type: VType) -> Reg:
    """The same bits as another type, of the same width or with more or fewer lanes to match."""
    have, want = value.dtype.bits * value.lanes, type.dtype.bits * type.lanes
    if BOOL in (value.dtype, type.dtype):
        raise CodegenError(f"bitcast from {value.type} to {type}")
    if value.dtype.bits == type.dtype.bits:
        return value.code.splat(value.bits_as(type.dtype), type.lanes)
    if have != want:
        raise CodegenError(f"bitcast from {value.type} to {type}: widths differ")
    return value.code.result(f"bitcast {value.typed} to {llvm_type(type)}", type)


# ---- half types ---------------------------------------------------------------------------------


def bf16_to_f32(value: Reg) -> Reg:
    """Convert by a shift: bf16 is the upper half of f32."""
    wide = value.code.convert("zext", value, I32)
    return (wide << 16).bits_as(F32)


def f32_to_bf16(value: Reg) -> Reg:
    """Round to nearest even in integers: the processor's own instruction flushes denormals."""
    code = value.code
    bits = value.bits_as(I32)
    rounded = bits + 0x7FFF + (bits.logical_shift(16) & 1)
    upper = code.select(value.compare("uno", value), 0x7FC00000, rounded).logical_shift(16)
    return code.convert("trunc", upper, I16).bits_as(BF16)


def f16_to_f32(value: Reg) -> Reg:
    """Convert exactly; denormals are kept."""
    code, half = value.code, vector("half", value.lanes)
    if not code.isa.has_half:
        return _f16_to_f32_in_integers(value)
    bits = code.result(f"bitcast {value.typed} to {half}", value.type)
    type = VType(F32, value.lanes)
    return code.result(f"fpext {half} {bits.text} to {llvm_type(type)}", type)


def f32_to_f16(value: Reg) -> Reg:
    """Round to nearest even; denormals are kept."""
    code, half = value.code, vector("half", value.lanes)
    if not code.isa.has_half:
        return _f32_to_f16_in_integers(value)
    short = code.result(f"fptrunc {value.typed} to {half}", value.type)
    type = VType(F16, value.lanes)
    return code.result(f"bitcast {half} {short.text} to {llvm_type(type)}", type)


def _f16_to_f32_in_integers(value: Reg) -> Reg:
    """Put the bits at f32's places and let a multiplication by 2^112 fix exponent and denormals."""
    code = value.code
    wide = code.convert("zext", value, I32)
    magnitude = wide & 0x7FFF
    scaled = (magnitude << 13).bits_as(F32) * 2.0**112
    special = (magnitude << 13) | 0x7F800000
    bits = code.select(magnitude.compare("uge", 0x7C00), special, scaled.bits_as(I32))
    return (bits | ((wide & 0x8000) << 16)).bits_as(F32)


def _f32_to_f16_in_integers(value: Reg) -> Reg:
    """Normal results round in integers; denormal ones by adding 0.5, whose ulp is f16's 2^-24."""
    code = value.code
    bits = value.bits_as(I32)
    magnitude = bits & 0x7FFFFFFF
    rounded = (magnitude - (112 << 23) + 0xFFF + (magnitude.logical_shift(13) & 1)) >> 13
    tiny = (magnitude.bits_as(F32) + 0.5).bits_as(I32) - 0x3F000000
    finite = code.select(magnitude.compare("ult", 113 << 23), tiny, rounded)
    large = code.select(magnitude.compare("ugt", 0x7F800000), 0x7E00, magnitude.like(0x7C00))
    result = code.select(magnitude.compare("uge", 0x477FF000), large, finite)
    signed = result | (bits.logical_shift(16) & 0x8000)
    return code.convert("trunc", signed, I16).bits_as(F16)

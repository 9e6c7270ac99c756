"""`cast` and `bitcast`, as kernel/ops.py says of them."""

from __future__ import annotations

from kernelmill.codegen.code import Reg
from kernelmill.codegen.llvm_types import llvm_type, suffix
from kernelmill.core.dtype import BF16, BOOL, F16, F32, F64, I16, I32, I64, DType
from kernelmill.core.errors import CodegenError
from kernelmill.kernel.ir import VType


def cast(value: Reg, dtype: DType, outside: str = "") -> Reg:
    """Convert `value` to `dtype`, lane by lane. `outside`: see kernel/ops.py; "" for conversions
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
    code = value.code
    if not code.isa.has_half:
        return _f16_to_f32_in_integers(value)
    return _native_half(value, F32, extend=True)


def f32_to_f16(value: Reg) -> Reg:
    """Round to nearest even; denormals are kept."""
    code = value.code
    if not code.isa.has_half:
        return _f32_to_f16_in_integers(value)
    return _native_half(value, F16, extend=False)


def _native_half(value: Reg, dtype: DType, extend: bool) -> Reg:
    code, lanes = value.code, value.lanes
    half = "half" if lanes == 1 else f"<{lanes} x half>"
    if extend:
        bits = code.result(f"bitcast {value.typed} to {half}", value.type)
        text = f"fpext {half} {bits.text} to {_float_name(lanes)}"
        return code.result(text, type(value.type)(dtype, lanes))
    short = code.result(f"fptrunc {value.typed} to {half}", value.type)
    integer = "i16" if lanes == 1 else f"<{lanes} x i16>"
    return code.result(f"bitcast {half} {short.text} to {integer}", type(value.type)(dtype, lanes))


def _float_name(lanes: int) -> str:
    return "float" if lanes == 1 else f"<{lanes} x float>"


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

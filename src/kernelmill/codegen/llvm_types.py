"""Register types and constants in LLVM IR text.

f16 and bf16 live in registers as plain 16-bit integers: kernels only move and convert them, and
LLVM's own half types would bring conversions that flush denormals. bool is i1.
"""

from __future__ import annotations

import math
import struct
from functools import cache

from kernelmill.core.dtype import BF16, DType
from kernelmill.kernel.ir import VType

_ELEMENT = {
    "f64": "double", "f32": "float", "f16": "i16", "bf16": "i16",
    "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "u8": "i8", "bool": "i1",
}  # fmt: skip


def element(dtype: DType) -> str:
    """Return the LLVM type of one element in a register."""
    return _ELEMENT[dtype.name]


def in_memory(dtype: DType) -> str:
    """Return the LLVM type of one element in memory: bool takes a byte there."""
    return "i8" if dtype.kind == "bool" else _ELEMENT[dtype.name]


def vector(element_type: str, lanes: int) -> str:
    """Return a vector of an LLVM type, or the type itself for one lane."""
    return element_type if lanes == 1 else f"<{lanes} x {element_type}>"


@cache
def llvm_type(type: VType) -> str:
    """Return the LLVM type of a register; of a tile that of a row."""
    return vector(_ELEMENT[type.dtype.name], type.lanes)


_SUFFIX = {"double": "f64", "float": "f32"}


@cache
def suffix(type: VType) -> str:
    """Return the suffix of an overloaded intrinsic's name for the type: "v16f32", "i64"."""
    name = _ELEMENT[type.dtype.name]
    name = _SUFFIX.get(name, name)
    return name if type.lanes == 1 else f"v{type.lanes}{name}"


def constant(type: VType, value: float) -> str:
    """Return a literal of this type, the same in all lanes."""
    # 0.0 and -0.0 are equal, and would be one key of a cache.
    return _constant(type, value, math.copysign(1.0, value) < 0)


@cache
def _constant(type: VType, value: float, negative: bool) -> str:
    text = _scalar(type.dtype, value)
    if type.lanes == 1:
        return text
    if text in ("0", "false"):
        return "zeroinitializer"
    return f"splat ({_ELEMENT[type.dtype.name]} {text})"


def _scalar(dtype: DType, value: float) -> str:
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.bits == 16 and dtype.is_float:
        return str(half_bits(dtype, float(value)))
    if dtype.is_float:
        return hexadecimal(round_f32(float(value)) if dtype.bits == 32 else float(value))
    return str(int(value))


def hexadecimal(value: float) -> str:
    """Return LLVM's exact spelling of a float or double: the bits of the double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def round_f32(value: float) -> float:
    """Return the nearest f32; beyond the largest, infinity."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def half_bits(dtype: DType, value: float) -> int:
    """Return the 16 bits of an f16 or bf16 literal, rounded to nearest even by way of f32."""
    if dtype == BF16:
        bits = struct.unpack("<I", struct.pack("<f", round_f32(value)))[0]
        if value != value:
            return 0x7FC0
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF
    try:
        return struct.unpack("<H", struct.pack("<e", round_f32(value)))[0]
    except OverflowError:
        return 0xFC00 if value < 0 else 0x7C00

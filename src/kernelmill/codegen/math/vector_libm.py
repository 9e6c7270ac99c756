"""SLEEF's vector functions, or those of the C library one lane at a time.

libtorch_cpu exports SLEEF's functions for 256 and 512-bit vectors. Every lane count goes through
the same ones, in pieces padded with zeros, so that a value does not depend on where it stood.
"""

from __future__ import annotations

from kernelmill.codegen.code import Code, Reg, llvm_type
from kernelmill.codegen.targets import answers
from kernelmill.codegen.vectors import extract, joined, shuffle, slice_lanes
from kernelmill.core.dtype import F32, F64, I64
from kernelmill.kernel.ir import VType

_HALF_ULP = {"hypot"}
_ERFC = {"erfc"}


def call(name: str, arguments: list[Reg]) -> Reg:
    """Return `name` (as the C library calls it for doubles) of the arguments."""
    found = _vector_function(name, arguments[0])
    return _lane_by_lane(name, arguments) if found is None else _in_pieces(*found, arguments)


def has_vectors(x: Reg) -> bool:
    """Return True when functions for whole vectors of this type can be called."""
    return _vector_function("exp", x) is not None


def _vector_function(name: str, x: Reg) -> tuple[str, int] | None:
    accuracy = "u05" if name in _HALF_ULP else "u15" if name in _ERFC else "u10"
    return answers(x.code.isa).vector_function(name, x.dtype, accuracy)


def _in_pieces(function: str, width: int, arguments: list[Reg]) -> Reg:
    code, type = arguments[0].code, arguments[0].type
    piece = VType(type.dtype, width)
    code.module.declare(
        function, llvm_type(piece), [llvm_type(piece)] * len(arguments), " nounwind willreturn"
    )
    parts: list[Reg] = []
    for start in range(0, type.lanes, width):
        count = min(width, type.lanes - start)
        pieces = [_padded(argument, start, count, width) for argument in arguments]
        result = code.call(function, piece, *pieces)
        parts.append(result if count == width else slice_lanes(result, 0, count))
    return joined(parts)


def _padded(value: Reg, start: int, count: int, width: int) -> Reg:
    """Return `count` lanes from `start` on, and zeros up to `width`."""
    code = value.code
    if value.lanes == width:
        return value
    if count == width:
        return slice_lanes(value, start, width)
    zeros = code.const(VType(value.dtype, max(value.lanes, 2)), 0.0)
    if value.lanes == 1:
        whole = code.const(VType(value.dtype, width), 0.0)
        return code.result(f"insertelement {whole.typed}, {value.typed}, i64 0", whole.type)
    order = [start + lane if lane < count else value.lanes for lane in range(width)]
    return shuffle(value, zeros, order)


def _lane_by_lane(name: str, arguments: list[Reg]) -> Reg:
    """Call the C library's double function for each lane, rounding to f32 if that is wanted."""
    code, type = arguments[0].code, arguments[0].type
    code.module.declare(name, "double", ["double"] * len(arguments), " nounwind willreturn")
    if type.lanes == 1:
        return _one_lane(code, name, arguments)
    whole = Reg(code, "poison", type)
    for lane in range(type.lanes):
        number = code.const(VType(I64), lane)
        one = _one_lane(code, name, [extract(code, argument, number) for argument in arguments])
        text = f"insertelement {whole.typed}, {one.typed}, i64 {lane}"
        whole = code.result(text, type)
    return whole


def _one_lane(code: Code, name: str, arguments: list[Reg]) -> Reg:
    if arguments[0].dtype == F64:
        return code.call(name, VType(F64), *arguments)
    wide = [code.convert("fpext", argument, F64) for argument in arguments]
    return code.convert("fptrunc", code.call(name, VType(F64), *wide), F32)

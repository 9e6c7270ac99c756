"""Tiles on AMX. LLVM gives them registers, writes their configuration once for each function that
has any and loads it at its start, and releases them at its end.

Source of names and semantics: Intel SDM volume 2; LLVM's IntrinsicsX86.td.
"""

from __future__ import annotations

from kernelmill.codegen.code import Code, Reg
from kernelmill.core.dtype import I8
from kernelmill.core.target.dot_units import TILE_BF16, DotUnit
from kernelmill.kernel.ir import VType

_TILE = "x86_amx"


def zero(code: Code, type: VType) -> Reg:
    """Return a register of zeros."""
    return _call(code, "tilezero", type, _shape(type))


def load(type: VType, address: str, stride: Reg) -> Reg:
    """Load rows that are `stride` elements apart."""
    place = [f"ptr {address}", (stride * type.dtype.bytes).typed]
    return _call(stride.code, "tileloadd64", type, [*_shape(type), *place])


def store(value: Reg, address: str, stride: Reg) -> None:
    """Store rows that are `stride` elements apart."""
    place = [f"ptr {address}", (stride * value.dtype.bytes).typed, value.typed]
    arguments = [*_shape(value.type), *place]
    full = _declared(value.code, "tilestored64", "void", arguments)
    value.code.line(f"call void @{full}({', '.join(arguments)})")


def dot(unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
    """Emit the single instruction."""
    signs = "".join("s" if dtype == I8 else "u" for dtype in (unit.a, unit.b))
    name = "tdpbf16ps" if unit == TILE_BF16 else f"tdpb{signs}d"
    depth = _shape(a.type)[1]
    return _call(c.code, name, c.type, [*_shape(c.type), depth, c.typed, a.typed, b.typed])


def _shape(type: VType) -> list[str]:
    """Return the rows, and the bytes of one, as the instructions take them."""
    return [f"i16 {type.rows}", f"i16 {type.lanes * type.dtype.bytes}"]


def _call(code: Code, name: str, type: VType, arguments: list[str]) -> Reg:
    full = _declared(code, name, _TILE, arguments)
    return code.result(f"call {_TILE} @{full}({', '.join(arguments)})", type, _TILE)


def _declared(code: Code, name: str, result: str, arguments: list[str]) -> str:
    full = f"llvm.x86.{name}.internal"
    code.module.declare(full, result, [each.partition(" ")[0] for each in arguments])
    return full

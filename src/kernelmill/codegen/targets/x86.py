"""x86-64: SSE to AVX-512, VNNI, AVX512-BF16, AMX, and SLEEF's vector functions.

Source of names and semantics: Intel Intrinsics Guide; LLVM's IntrinsicsX86.td.

Tiles on AMX. LLVM gives them registers, writes their configuration once for each function that
has any and loads it at its start, and releases them at its end.

Source of names and semantics: Intel SDM volume 2; LLVM's IntrinsicsX86.td.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelmill.codegen import arithmetic
from kernelmill.codegen.code import Code, Reg, llvm_type, vector
from kernelmill.codegen.targets.generic import Generic
from kernelmill.codegen.vectors import in_pieces
from kernelmill.core.dtype import BF16, F32, I8, I16, I32, DType
from kernelmill.core.target.dot_units import (
    PAIRS_OF_16,
    TILE_BF16,
    VNNI,
    VNNI_SIGNED,
    WORDS_OF_16,
    DotUnit,
)
from kernelmill.kernel.ir import VType

_TILE = "x86_amx"


def zero(code: Code, type: VType) -> Reg:
    """Return a register of zeros."""
    return _tile_call(code, "tilezero", type, _shape(type))


def load(type: VType, address: str, stride: Reg) -> Reg:
    """Load rows that are `stride` elements apart."""
    place = [f"ptr {address}", (stride * type.dtype.bytes).typed]
    return _tile_call(stride.code, "tileloadd64", type, [*_shape(type), *place])


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
    return _tile_call(c.code, name, c.type, [*_shape(c.type), depth, c.typed, a.typed, b.typed])


def _shape(type: VType) -> list[str]:
    """Return the rows, and the bytes of one, as the instructions take them."""
    return [f"i16 {type.rows}", f"i16 {type.lanes * type.dtype.bytes}"]


def _tile_call(code: Code, name: str, type: VType, arguments: list[str]) -> Reg:
    full = _declared(code, name, _TILE, arguments)
    return code.result(f"call {_TILE} @{full}({', '.join(arguments)})", type, _TILE)


def _declared(code: Code, name: str, result: str, arguments: list[str]) -> str:
    full = f"llvm.x86.{name}.internal"
    code.module.declare(full, result, [each.partition(" ")[0] for each in arguments])
    return full


_PAIRS = {
    512: "llvm.x86.avx512.pmaddw.d.512",
    256: "llvm.x86.avx2.pmadd.wd",
    128: "llvm.x86.sse2.pmadd.wd",
}
"""By bits of a vector: products of 16-bit numbers, neighbours added."""

_TRUNCATED = {
    16: "llvm.x86.avx512.mask.cvttps2dq.512",
    8: "llvm.x86.avx.cvtt.ps2dq.256",
    4: "llvm.x86.sse2.cvttps2dq",
}
"""By lanes: f32 to i32, the lowest one for NaN and what is out of range."""

_SCALED_LANES = 16
_TO_FLOOR = 9
"""Of a reduction: rounding down to integers, and no exception for a result that is not exact."""


class X86(Generic):
    """x86-64 of any level."""

    def dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        bits = 32 * c.lanes
        if bits in _PAIRS and bits <= self.isa.vector_bits:
            if unit in (VNNI, PAIRS_OF_16):
                return self._dot_bytes(a, b, c)
            if unit == WORDS_OF_16:
                return c + _dot_words(a, b, bits)
            if unit == VNNI_SIGNED == self.isa.dot_unit(I8, bits):
                return _call(f"llvm.x86.avx2.vpdpbssd.{bits}", c, a, b)
            if unit == self.isa.dot_unit(BF16, bits):
                return _dot_bf16(a, b, c)
        return super().dot(unit, a, b, c)

    def _dot_bytes(self, a: Reg, b: Reg, c: Reg) -> Reg:
        bits = 32 * c.lanes
        if VNNI.there(self.isa.features, bits):
            return _call(f"llvm.x86.avx512.vpdpbusd.{bits}", c, a, b)
        return c + _pairs(a, b, bits)

    def masks_memory(self, bytes: int) -> bool:
        return self.isa.vector_bits >= (512 if bytes < 4 else 256)

    @property
    def stores_lanes_slowly(self) -> bool:
        return self.isa.vector_bits == 256  # many operations on AMD's Zen 3

    def tile_zero(self, code: Code, type: VType) -> Reg:
        return zero(code, type) if self.isa.has_tiles else super().tile_zero(code, type)

    def tile_load(self, type: VType, address: str, stride: Reg) -> Reg:
        here = load if self.isa.has_tiles else super().tile_load
        return here(type, address, stride)

    def tile_store(self, value: Reg, address: str, stride: Reg) -> None:
        here = store if self.isa.has_tiles else super().tile_store
        here(value, address, stride)

    def tile_dot(self, unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
        here = dot if self.isa.has_tiles else super().tile_dot
        return here(unit, a, b, c)

    def tiles_carried(self, values: Sequence[Reg]) -> list[Reg]:
        return list(values) if self.isa.has_tiles else super().tiles_carried(values)

    def scale(self, p: Reg, k: Reg) -> Reg | None:
        if not self._scales(p.lanes):
            return None
        name, rest = "llvm.x86.avx512.mask.scalef.ps.512", _whole_and_mode(p.code)
        return in_pieces(lambda a, power: _call(name, a, power, a, *rest), _SCALED_LANES, p, k)

    def above_floor(self, x: Reg) -> Reg | None:
        if not self._scales(x.lanes):
            return None
        name, rest = "llvm.x86.avx512.mask.reduce.ps.512", _whole_and_mode(x.code)
        down = x.code.const(VType(I32), _TO_FLOOR)
        return in_pieces(lambda a: _call(name, a, down, a, *rest), _SCALED_LANES, x)

    def truncate(self, x: Reg) -> Reg | None:
        most = self.isa.vector_bits // 32
        lanes = next((n for n in _TRUNCATED if n <= most and x.lanes % n == 0), 0)
        if not lanes:
            return None
        kind = VType(I32, lanes)
        rest = (x.code.const(kind, 0), *_whole_and_mode(x.code)) if lanes == _SCALED_LANES else ()
        return in_pieces(lambda a: _call(_TRUNCATED[lanes], a, *rest, result=kind), lanes, x)

    def _scales(self, lanes: int) -> bool:
        return self.isa.has_scale and lanes % _SCALED_LANES == 0

    def vector_function(self, name: str, dtype: DType, accuracy: str) -> tuple[str, int] | None:
        if not self.isa.has_vector_math:
            return None
        lanes = self.isa.vector_bits // dtype.bits
        return f"Sleef_{name}{'f' if dtype == F32 else 'd'}{lanes}_{accuracy}", lanes

    def nontemporal_fence(self, code: Code) -> None:
        code.module.declare("llvm.x86.sse.sfence", "void", [])
        code.line("call void @llvm.x86.sse.sfence()")

    def spin_hint(self) -> tuple[str, str]:
        return "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"


def _dot_bf16(a: Reg, b: Reg, c: Reg) -> Reg:
    name, code = f"llvm.x86.avx512bf16.dpbf16ps.{32 * c.lanes}", c.code
    kind, halves = llvm_type(c.type), vector("bfloat", 2 * c.lanes)
    code.module.declare(name, kind, [kind, halves, halves])
    x, y = (code.result(f"bitcast {each.typed} to {halves}", each.type).text for each in (a, b))
    return code.result(f"call {kind} @{name}({c.typed}, {halves} {x}, {halves} {y})", c.type)


def _dot_words(a: Reg, b: Reg, bits: int) -> Reg:
    """Add the products of two numbers of 16 bits in each lane."""
    x, y = (arithmetic.bitcast(each, VType(I16, 2 * each.lanes)) for each in (a, b))
    return _call(_PAIRS[bits], x, y, result=a.type)


def _pairs(a: Reg, b: Reg, bits: int) -> Reg:
    """Sum four bytes by way of 16 bits: the even and the odd ones. Nothing saturates."""
    even, odd = a & 0x00FF00FF, a.logical_shift(8) & 0x00FF00FF
    halves = arithmetic.bitcast(b, VType(I16, 2 * b.lanes))
    low, high = (halves << 8) >> 8, halves >> 8
    total: Reg | None = None
    for unsigned, signed in ((even, low), (odd, high)):
        wide = arithmetic.bitcast(unsigned, VType(I16, 2 * a.lanes))
        sums = _call(_PAIRS[bits], wide, signed, result=a.type)
        total = sums if total is None else total + sums
    assert total is not None
    return total


def _call(name: str, *arguments: Reg, result: VType | None = None) -> Reg:
    code, kind = arguments[0].code, result or arguments[0].type
    code.module.declare(name, llvm_type(kind), [llvm_type(each.type) for each in arguments])
    return code.call(name, kind, *arguments)


def _whole_and_mode(code: Code) -> tuple[Reg, Reg]:
    """Return the mask of all lanes, and the current rounding mode."""
    return code.const(VType(I16), -1), code.const(VType(I32), 4)

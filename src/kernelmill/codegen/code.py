"""Writes LLVM IR text: a module of functions, a function of blocks, registers with operators.

A function keeps a stack of regions, one for each open loop nest level or branch. New lines go to
the innermost region's current block; `hoisted` lines go to an outer one, whose block is still open
because its terminator is written only when the inner region closes. That makes everything that
does not depend on a loop stay outside of it, with no optimiser.

f16 and bf16 live in registers as plain 16-bit integers: kernels only move and convert them, and
LLVM's own half types would bring conversions that flush denormals. bool is i1.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Union

from kernelmill.core.dtype import BF16, BOOL, DType
from kernelmill.core.target.isa import Isa
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


Number = Union[int, float]

_RARE = '!1 = !{!"branch_weights", i32 1, i32 100000}'
"""Marks a branch whose first side is almost never taken."""


class Reg:
    """A typed LLVM value: the name of a result, or a literal.

    `special`: the LLVM type where it is not that of `type`.
    """

    __slots__ = ("code", "special", "text", "type")

    def __init__(self, code: Code, text: str, type: VType, special: str = "") -> None:
        self.code, self.text, self.type, self.special = code, text, type, special

    @property
    def llvm(self) -> str:
        """LLVM type."""
        return self.special or llvm_type(self.type)

    @property
    def typed(self) -> str:
        """Type and name, as an operand is written."""
        return f"{self.llvm} {self.text}"

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def lanes(self) -> int:
        return self.type.lanes

    def like(self, value: Number) -> Reg:
        """Return a literal of this register's type."""
        return self.code.const(self.type, value)

    def _both(self, operation: str, other: Reg | Number, swap: bool = False) -> Reg:
        right = other if isinstance(other, Reg) else self.like(other)
        a, b = (right, self) if swap else (self, right)
        return self.code.binary(operation, a, b)

    def __add__(self, other: Reg | Number) -> Reg:
        return self._both("fadd" if self.dtype.is_float else "add", other)

    __radd__ = __add__

    def __sub__(self, other: Reg | Number) -> Reg:
        return self._both("fsub" if self.dtype.is_float else "sub", other)

    def __rsub__(self, other: Number) -> Reg:
        return self._both("fsub" if self.dtype.is_float else "sub", other, swap=True)

    def __mul__(self, other: Reg | Number) -> Reg:
        return self._both("fmul" if self.dtype.is_float else "mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Reg | Number) -> Reg:
        return self._both("fdiv", other)

    def __rtruediv__(self, other: Number) -> Reg:
        return self._both("fdiv", other, swap=True)

    def __and__(self, other: Reg | int) -> Reg:
        return self._both("and", other)

    def __or__(self, other: Reg | int) -> Reg:
        return self._both("or", other)

    def __xor__(self, other: Reg | int) -> Reg:
        return self._both("xor", other)

    def __invert__(self) -> Reg:
        return self._both("xor", 1 if self.dtype == BOOL else -1)

    def __lshift__(self, count: int) -> Reg:
        return self._both("shl", count)

    def __rshift__(self, count: int) -> Reg:
        """Shift right arithmetically: the sign is kept."""
        return self._both("ashr", count)

    def logical_shift(self, count: int) -> Reg:
        """Shift right, filling with zeros."""
        return self._both("lshr", count)

    def __neg__(self) -> Reg:
        if not self.dtype.is_float:
            return 0 - self
        return self.code.result(f"fneg {self.typed}", self.type)

    def compare(self, predicate: str, other: Reg | Number) -> Reg:
        """Compare by LLVM's predicate of `fcmp` or `icmp`: "olt", "uno", "slt", ..."""
        right = other if isinstance(other, Reg) else self.like(other)
        word = "fcmp" if self.dtype.is_float else "icmp"
        text = f"{word} {predicate} {self.typed}, {right.text}"
        return self.code.result(text, VType(BOOL, self.lanes))

    def bits_as(self, dtype: DType) -> Reg:
        """Return the same bits read as another element type of the same width."""
        type = VType(dtype, self.lanes)
        if llvm_type(type) == llvm_type(self.type):
            return Reg(self.code, self.text, type)
        return self.code.result(f"bitcast {self.typed} to {llvm_type(type)}", type)


class Block:
    """A basic block that may still be written to."""

    __slots__ = ("label", "lines")

    def __init__(self, label: str) -> None:
        self.label, self.lines = label, list[str]()


class Region:
    """One level of nesting: its current block, and the values already computed at this level."""

    __slots__ = ("block", "known")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.known: dict[object, str] = {}


class Module:
    """Functions and the declarations they need, for one instruction set."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.functions: dict[str, str] = {}
        self._declared: dict[str, str] = {}

    def declare(self, name: str, result: str, arguments: Sequence[str], tail: str = "") -> None:
        """Make `@name` callable; a second time is no matter."""
        if name not in self._declared:
            text = f"declare {result} @{name}({', '.join(arguments)}){tail}"
            self._declared[name] = text

    def __str__(self) -> str:
        width = self.isa.vector_bits
        attributes = (
            f'nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" '
            f'"target-cpu"="{self.isa.llvm_cpu}" '
            f'"target-features"="{self.isa.llvm_features}"'
        )
        parts = [f'target triple = "{self.isa.triple}"', *self._declared.values()]
        parts += self.functions.values()
        parts += [f"attributes #0 = {{ {attributes} }}", "!0 = !{}", _RARE, ""]
        return "\n".join(parts)


class Code:
    """One function that is being written."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.isa = module.isa
        self._count = 0
        self.definitions: dict[str, str] = {}
        self._depths: dict[str, int] = {}
        self._blocks = [Block("entry")]
        self.regions = [Region(self._blocks[0])]

    # ---- lines ------------------------------------------------------------------------------

    def fresh(self) -> str:
        """Return a result name that is not taken."""
        self._count += 1
        return f"%t{self._count}"

    def line(self, text: str) -> None:
        """Append a line without a result."""
        self.regions[-1].block.lines.append(text)

    def result(self, text: str, type: VType, special: str = "") -> Reg:
        """Append an instruction and return its result."""
        return Reg(self, self.hoisted(text, -1), type, special)

    def hoisted(self, text: str, depth: int) -> str:
        """Append an instruction to the current block of region number `depth`."""
        name = self.fresh()
        self.definitions[name] = text
        self._depths[name] = depth % len(self.regions)
        self.regions[depth].block.lines.append(f"{name} = {text}")
        return name

    def depth(self, *values: Reg) -> int:
        """Return the number of the outermost region in which all of these are known. Literals stay
        where they are used: LLVM folds them there only."""
        names = [value.text for value in values if value.text.startswith("%")]
        return max((self._depths.get(n, 0) for n in names), default=len(self.regions) - 1)

    @contextmanager
    def outside(self, depth: int) -> Generator[None]:
        """Write into the current block of region number `depth`."""
        inner = self.regions[depth + 1 :]
        del self.regions[depth + 1 :]
        try:
            yield
        finally:
            self.regions += inner

    def on_stack(self, bytes: int) -> str:
        """Return the address of memory that the function has until it returns."""
        name = self.fresh()
        self._blocks[0].lines.insert(0, f"{name} = alloca [{bytes} x i8], align 64")
        return name

    def opaque(self, typed: str, depth: int = -1) -> str:
        """Return a name for this value, of which LLVM knows nothing."""
        known = self.regions[depth].known
        found = known.get(("opaque", typed))
        if found is None:
            kind = typed.partition(" ")[0]
            found = self.hoisted(f'call {kind} asm "", "=r,0"({typed})', depth)
            known["opaque", typed] = found
        return found

    # ---- blocks -----------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """Label of the current block, for the incoming edges of a phi."""
        return self.regions[-1].block.label

    def new_block(self, hint: str) -> Block:
        """Return a block that is not placed yet."""
        self._count += 1
        return Block(f"{hint}{self._count}")

    def place(self, block: Block) -> None:
        """Go on in `block`, in the current region. The block before must have been ended."""
        self._blocks.append(block)
        self.regions[-1].block = block

    @contextmanager
    def region(self, block: Block) -> Generator[None]:
        """Write into a new innermost region that starts with `block`."""
        self._blocks.append(block)
        self.regions.append(Region(block))
        try:
            yield
        finally:
            self.regions.pop()

    def finish(self, head: str) -> str:
        """Return the text of the function; `head` is everything before the opening brace."""
        lines = [f"{head} {{"]
        for block in self._blocks:
            lines.append(f"{block.label}:")
            lines.extend(block.lines)
        lines.append("}")
        return "\n".join(lines)

    # ---- values -----------------------------------------------------------------------------

    def const(self, type: VType, value: Number) -> Reg:
        """Return a literal, the same in all lanes."""
        return Reg(self, constant(type, value), type)

    def splat(self, value: Reg, lanes: int) -> Reg:
        """Spread a scalar over all lanes; a vector is returned as it is."""
        if lanes == 1 or value.lanes > 1:
            return value
        type = VType(value.dtype, lanes)
        if not value.text.startswith("%"):
            return Reg(self, _splat_literal(value, lanes), type)
        name = llvm_type(type)
        first = self.result(f"insertelement {name} poison, {value.typed}, i64 0", type)
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.result(f"shufflevector {first.typed}, {name} poison, {zeros}", type)

    def binary(self, operation: str, a: Reg, b: Reg) -> Reg:
        """Append an instruction on two operands of one type; a scalar is spread over lanes."""
        lanes = max(a.lanes, b.lanes)
        a, b = self.splat(a, lanes), self.splat(b, lanes)
        return self.result(f"{operation} {a.typed}, {b.text}", a.type)

    def select(self, condition: Reg, a: Reg | Number, b: Reg | Number) -> Reg:
        """Select lane by lane `a` where the condition holds, else `b`. One must be a register."""
        model = a if isinstance(a, Reg) else b
        assert isinstance(model, Reg)
        type = VType(model.dtype, max(condition.lanes, model.lanes))
        left = a if isinstance(a, Reg) else self.const(type, a)
        right = b if isinstance(b, Reg) else self.const(type, b)
        left, right = self.splat(left, type.lanes), self.splat(right, type.lanes)
        return self.result(f"select {condition.typed}, {left.typed}, {right.typed}", type)

    def intrinsic(self, name: str, *arguments: Reg, extra: str = "") -> Reg:
        """Call an `llvm.*` operation overloaded on its first argument, of the result's type."""
        type = arguments[0].type
        full = f"llvm.{name}.{suffix(type)}"
        kinds = [llvm_type(a.type) for a in arguments] + (["i1"] if extra else [])
        self.module.declare(full, kinds[0], kinds)
        inside = ", ".join([a.typed for a in arguments] + ([extra] if extra else []))
        return self.result(f"call {kinds[0]} @{full}({inside})", type)

    def fma(self, a: Reg, b: Reg | Number, c: Reg | Number) -> Reg:
        """Append a*b + c with one rounding."""
        right = b if isinstance(b, Reg) else a.like(b)
        added = c if isinstance(c, Reg) else a.like(c)
        return self.intrinsic("fma", a, right, added)

    def absolute(self, a: Reg) -> Reg:
        """Append |a|; the most negative integer stays as it is."""
        if a.dtype.is_float:
            return self.intrinsic("fabs", a)
        return self.intrinsic("abs", a, extra="i1 false")

    def call(self, name: str, result: VType, *arguments: Reg) -> Reg:
        """Call a declared function, by value."""
        inside = ", ".join(a.typed for a in arguments)
        return self.result(f"call {llvm_type(result)} @{name}({inside})", result)

    def convert(self, word: str, value: Reg, dtype: DType) -> Reg:
        """Append a conversion instruction: "sext", "fpext", "sitofp", ..."""
        type = VType(dtype, value.lanes)
        return self.result(f"{word} {value.typed} to {llvm_type(type)}", type)


def _splat_literal(value: Reg, lanes: int) -> str:
    if value.text in ("0", "false"):
        return "zeroinitializer"
    element = llvm_type(VType(value.dtype))
    return f"splat ({element} {value.text})" if lanes > 1 else value.text

"""Tiles in plain vectors: a value is one long vector of all rows, which LLVM cuts into registers or
puts on the stack. Slow, and right for every shape and unit.

What is done to a tile is a function of the module: rows are reached through memory there.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.codegen.code import Code, Module, Reg
from kernelmill.codegen.llvm_types import element, llvm_type
from kernelmill.codegen.targets import words
from kernelmill.core.dot_units import DotUnit, Sums
from kernelmill.core.dtype import BOOL, I32, I64
from kernelmill.kernel.ir import VType

_INDEX = VType(I64)


def load(type: VType, address: str, stride: Reg) -> Reg:
    """The rows that are `stride` elements apart."""
    code, name = stride.code, f"tile_load.{_shape(type)}"
    if name not in code.module.functions:
        code.module.functions[name] = _load(code.module, name, type)
    return code.result(f"call {llvm_type(type)} @{name}(ptr {address}, {stride.typed})", type)


def store(value: Reg, address: str, stride: Reg) -> None:
    """Write the rows, `stride` elements apart."""
    code, name = value.code, f"tile_store.{_shape(value.type)}"
    if name not in code.module.functions:
        code.module.functions[name] = _store(code.module, name, value.type)
    code.line(f"call void @{name}({value.typed}, ptr {address}, {stride.typed})")


def dot(unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
    """c plus the product of `a` and `b`, as core/dot_units.py says of the unit."""
    code, name = c.code, f"tile_dot.{unit.name}.{_shape(a.type)}.{_shape(c.type)}"
    if name not in code.module.functions:
        code.module.functions[name] = _dot(code.module, name, unit, (a.type, b.type, c.type))
    return code.result(f"call {c.llvm} @{name}({a.typed}, {b.typed}, {c.typed})", c.type)


def _shape(type: VType) -> str:
    return f"{type.rows}x{type.lanes}x{type.dtype.name}"


def _load(module: Module, name: str, type: VType) -> str:
    code, kind = Code(module), llvm_type(type)
    whole = _memory(code, type)
    _each_row(code, type.rows, lambda row: _copy(code, type, (row, "%address"), (row, whole)))
    code.line(f"ret {_row(code, kind, whole, type).typed}")
    return code.finish(f"define internal {kind} @{name}(ptr %address, i64 %stride) #0")


def _store(module: Module, name: str, type: VType) -> str:
    code = Code(module)
    whole = _memory(code, type, "%value")
    _each_row(code, type.rows, lambda row: _copy(code, type, (row, whole), (row, "%address")))
    code.line("ret void")
    kind = llvm_type(type)
    return code.finish(f"define internal void @{name}({kind} %value, ptr %address, i64 %stride) #0")


def _copy(code: Code, type: VType, source: tuple[Reg, str], target: tuple[Reg, str]) -> None:
    """One row; at %address rows are %stride elements apart, elsewhere side by side."""
    places: list[str] = []
    for row, base in (source, target):
        stride = "%stride" if base == "%address" else str(type.lanes)
        first = code.result(f"mul i64 {row.text}, {stride}", _INDEX)
        places.append(_place(code, base, element(type.dtype), first))
    row_type = VType(type.dtype, type.lanes)
    value = _row(code, llvm_type(row_type), places[0], row_type)
    code.line(f"store {value.typed}, ptr {places[1]}, align {type.dtype.bytes}")


def _dot(module: Module, name: str, unit: DotUnit, types: tuple[VType, VType, VType]) -> str:
    code, (_, b, c) = Code(module), types
    groups, words_of_row = b.rows, VType(I32, c.lanes)
    left, right, total = (_memory(code, t, f"%{n}") for t, n in zip(types, "abc", strict=True))

    def row(number: Reg) -> None:
        pairs: list[tuple[Reg, Reg]] = []
        for k in range(groups):
            place = code.result(f"mul i64 {number.text}, {groups}", _INDEX) + k
            word = _row(code, "i32", _place(code, left, "i32", place), VType(I32))
            at = _place(code, right, "i32", code.const(_INDEX, k * c.lanes))
            column = _row(code, llvm_type(words_of_row), at, words_of_row)
            pairs.append((code.splat(word, c.lanes), column))
        place = code.result(f"mul i64 {number.text}, {c.lanes}", _INDEX)
        address = _place(code, total, element(c.dtype), place)
        row_type = VType(c.dtype, c.lanes)
        value = _row(code, llvm_type(row_type), address, row_type)
        code.line(f"store {_summed(unit, pairs, value).typed}, ptr {address}, align 4")

    _each_row(code, c.rows, row)
    code.line(f"ret {_row(code, llvm_type(c), total, c).typed}")
    arguments = ", ".join(f"{llvm_type(t)} %{n}" for t, n in zip(types, "abc", strict=True))
    return code.finish(f"define internal {llvm_type(c)} @{name}({arguments}) #0")


def _summed(unit: DotUnit, pairs: list[tuple[Reg, Reg]], total: Reg) -> Reg:
    """A row of sums and the products of these words, in the order of k."""
    if unit.sums == Sums.WRAPPING:
        for a, b in pairs:
            total = words.add_bytes(unit, a, b, total)
        return total
    assert unit.sums == Sums.EVEN_AND_ODD, unit.name
    halves: list[Reg] = []
    for half in (0, 1):
        chain = total.like(0.0)
        for a, b in pairs:
            chain = words.add_product(words.bf16(a, half), words.bf16(b, half), chain)
        halves.append(chain)
    one = total.like(1.0)
    both = words.add_product(halves[0], one, halves[1])
    return words.add_product(both, one, words.flushed(total))


def _memory(code: Code, type: VType, value: str = "") -> str:
    """The address of a tile on the stack, with rows side by side."""
    bytes = type.rows * type.lanes * type.dtype.bytes
    address = code.result(f"alloca [{bytes} x i8], align 64", _INDEX).text
    if value:
        code.line(f"store {llvm_type(type)} {value}, ptr {address}, align 64")
    return address


def _place(code: Code, base: str, kind: str, index: Reg) -> str:
    return code.result(f"getelementptr {kind}, ptr {base}, {index.typed}", _INDEX).text


def _row(code: Code, kind: str, address: str, type: VType) -> Reg:
    return code.result(f"load {kind}, ptr {address}, align {type.dtype.bytes}", type)


def _each_row(code: Code, rows: int, body: Callable[[Reg], None]) -> None:
    head, done = code.new_block("row"), code.new_block("done")
    before = code.label
    with code.region(head):
        row = code.result("", _INDEX)
        body(row)
        following = row + 1
        again = code.result(f"icmp slt i64 {following.text}, {rows}", VType(BOOL))
        code.line(f"br {again.typed}, label %{head.label}, label %{done.label}")
        edges = f"[ 0, %{before} ], [ {following.text}, %{code.label} ]"
        head.lines[0] = f"{row.text} = phi i64 {edges}"
    code.line(f"br label %{head.label}")
    code.place(done)

"""Tiles in memory and plain vectors: a value is the address of its rows, side by side on the stack.
Slow, and right for every shape and unit; LLVM, which would cut a tile in vectors into dozens of
registers, is soon done with it.

Each instruction has a place of its own for its result. The next pass of a loop writes there anew:
what a loop carries is copied to where nothing else is written.

What is done to a tile is a function of the module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmill.codegen import vectors
from kernelmill.codegen.code import Code, Module, Reg, element, llvm_type
from kernelmill.codegen.targets import words
from kernelmill.core.dtype import BOOL, I32, I64
from kernelmill.core.target.dot_units import DotUnit, Sums
from kernelmill.kernel.ir import VType

_INDEX = VType(I64)


def zero(code: Code, type: VType) -> Reg:
    """Return rows of zeros."""
    name = f"tile_zero.{_shape(type)}"
    if name not in code.module.functions:
        code.module.functions[name] = _zero(code.module, name, type)
    place = _place_for(code, type)
    code.line(f"call void @{name}({place.typed})")
    return place


def load(type: VType, address: str, stride: Reg) -> Reg:
    """Load rows that are `stride` elements apart."""
    place = _place_for(stride.code, type)
    _copy(type, (place.text, stride.like(type.lanes)), (address, stride))
    return place


def store(value: Reg, address: str, stride: Reg) -> None:
    """Write the rows, `stride` elements apart."""
    _copy(value.type, (address, stride), (value.text, stride.like(value.lanes)))


def dot(unit: DotUnit, a: Reg, b: Reg, c: Reg) -> Reg:
    """c plus the product of `a` and `b`, as core/target/dot_units.py says of the unit."""
    code, name = c.code, f"tile_dot.{unit.name}.{_shape(a.type)}.{_shape(c.type)}"
    if name not in code.module.functions:
        code.module.functions[name] = _dot(code.module, name, unit, (a.type, b.type, c.type))
    place = _place_for(code, c.type)
    code.line(f"call void @{name}({place.typed}, {a.typed}, {b.typed}, {c.typed})")
    return place


def carried(values: Sequence[Reg]) -> list[Reg]:
    """Return copies, which stay unchanged until all of them are made again."""
    for _ in range(2):  # the second time all are read: the first copies are written one by one
        values = [_copied(value) for value in values]
    return list(values)


def interleave(a: Reg, b: Reg, half: int) -> Reg:
    """As vectors.interleave, of the words of rows that are to become columns: LLVM looks for one
    shuffle in place of all that follow one another, which takes long where a row is several
    registers."""
    code, name = a.code, f"interleave.{half}.{a.lanes}x{a.dtype.name}"
    if name not in code.module.functions:
        inner = Code(code.module)
        left, right = (Reg(inner, text, a.type) for text in ("%a", "%b"))
        inner.line(f"ret {vectors.interleave(left, right, half).typed}")
        head = f"define internal {a.llvm} @{name}({left.typed}, {right.typed}) #0"
        code.module.functions[name] = inner.finish(head)
    return code.result(f"call {a.llvm} @{name}({a.typed}, {b.typed})", a.type)


def _copied(value: Reg) -> Reg:
    return load(value.type, value.text, value.code.const(_INDEX, value.lanes))


def _shape(type: VType) -> str:
    return f"{type.rows}x{type.lanes}x{type.dtype.name}"


def _place_for(code: Code, type: VType) -> Reg:
    bytes = type.rows * type.lanes * type.dtype.bytes
    return Reg(code, code.on_stack(bytes), type, "ptr")


def _copy(type: VType, target: tuple[str, Reg], source: tuple[str, Reg]) -> None:
    """Copy rows between addresses, each side with its own stride."""
    code, name = target[1].code, f"tile_copy.{_shape(type)}"
    if name not in code.module.functions:
        code.module.functions[name] = _copying(code.module, name, type)
    sides = ", ".join(f"ptr {address}, {stride.typed}" for address, stride in (target, source))
    code.line(f"call void @{name}({sides})")


def _copying(module: Module, name: str, type: VType) -> str:
    code, row_type = Code(module), VType(type.dtype, type.lanes)

    def row(number: Reg, _: list[Reg]) -> list[Reg]:
        to, source = (
            _place(code, base, type, number * Reg(code, stride, _INDEX))
            for base, stride in (("%to", "%to_stride"), ("%source", "%source_stride"))
        )
        _write(_row(code, source, row_type), to)
        return []

    _passes(code, type.rows, row)
    code.line("ret void")
    sides = "ptr %to, i64 %to_stride, ptr %source, i64 %source_stride"
    return code.finish(f"define internal void @{name}({sides}) #0")


def _zero(module: Module, name: str, type: VType) -> str:
    code, row_type = Code(module), VType(type.dtype, type.lanes)

    def row(number: Reg, _: list[Reg]) -> list[Reg]:
        _write(code.const(row_type, 0), _place(code, "%to", type, number * type.lanes))
        return []

    _passes(code, type.rows, row)
    code.line("ret void")
    return code.finish(f"define internal void @{name}(ptr %to) #0")


def _dot(module: Module, name: str, unit: DotUnit, types: tuple[VType, VType, VType]) -> str:
    code, (_, b, c) = Code(module), types
    groups, word, words_of_row = b.rows, VType(I32), VType(I32, c.lanes)

    def row(number: Reg, _: list[Reg]) -> list[Reg]:
        place = number * c.lanes
        total = _row(code, _place(code, "%c", c, place), VType(c.dtype, c.lanes))

        def pair(k: Reg, sums: list[Reg]) -> list[Reg]:
            left = _row(code, _place(code, "%a", word, number * groups + k), word)
            right = _row(code, _place(code, "%b", word, k * c.lanes), words_of_row)
            return _added(unit, code.splat(left, c.lanes), right, sums)

        begin = [total] if unit.sums == Sums.WRAPPING else [total.like(0.0)] * 2
        sums = _passes(code, groups, pair, begin)
        _write(_total(unit, sums, total), _place(code, "%to", c, place))
        return []

    _passes(code, c.rows, row)
    code.line("ret void")
    return code.finish(f"define internal void @{name}(ptr %to, ptr %a, ptr %b, ptr %c) #0")


def _added(unit: DotUnit, a: Reg, b: Reg, sums: list[Reg]) -> list[Reg]:
    """The sums with the products of these words: one, or one of the even and one of the odd."""
    if unit.sums == Sums.WRAPPING:
        return [words.add_bytes(unit, a, b, sums[0])]
    assert unit.sums == Sums.EVEN_AND_ODD, unit.name
    return [
        words.add_product(words.bf16(a, half), words.bf16(b, half), total)
        for half, total in enumerate(sums)
    ]


def _total(unit: DotUnit, sums: list[Reg], before: Reg) -> Reg:
    if unit.sums == Sums.WRAPPING:
        return sums[0]
    one = before.like(1.0)
    return words.add_product(words.add_product(sums[0], one, sums[1]), one, words.flushed(before))


def _place(code: Code, base: str, type: VType, index: Reg) -> str:
    kind = element(type.dtype)
    return code.result(f"getelementptr {kind}, ptr {base}, {index.typed}", _INDEX).text


def _row(code: Code, address: str, type: VType) -> Reg:
    return code.result(f"load {llvm_type(type)}, ptr {address}, align {type.dtype.bytes}", type)


def _write(row: Reg, address: str) -> None:
    row.code.line(f"store {row.typed}, ptr {address}, align {row.dtype.bytes}")


def _passes(
    code: Code, count: int, body: Callable[[Reg, list[Reg]], list[Reg]], initial: Sequence[Reg] = ()
) -> list[Reg]:
    """Write a loop of one pass or more; return the carried values after the last one."""
    head, done = code.new_block("pass"), code.new_block("done")
    before, begin = code.label, [code.const(_INDEX, 0), *initial]
    with code.region(head):
        number, *state = [code.result("", value.type) for value in begin]
        results = body(number, state)
        following = number + 1
        again = code.result(f"icmp slt {following.typed}, {count}", VType(BOOL))
        code.line(f"br {again.typed}, label %{head.label}, label %{done.label}")
        edges = zip((number, *state), begin, (following, *results), strict=True)
        for line, (phi, first, last) in enumerate(edges):
            sides = f"[ {first.text}, %{before} ], [ {last.text}, %{code.label} ]"
            head.lines[line] = f"{phi.text} = phi {phi.llvm} {sides}"
    code.line(f"br label %{head.label}")
    code.place(done)
    return results

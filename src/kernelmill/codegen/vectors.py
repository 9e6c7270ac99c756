"""Operators that make vectors, take them apart or fold them to a scalar."""

from __future__ import annotations

import operator
from collections.abc import Callable

from kernelmill.codegen import arithmetic
from kernelmill.codegen.code import Code, Reg, constant, element, llvm_type
from kernelmill.core.dtype import BOOL, I8, I32, I64
from kernelmill.kernel.ir import VType


def iota(code: Code, type: VType) -> Reg:
    """Return 0, 1, 2, ... in the lanes."""
    if type.lanes == 1:
        return code.const(type, 0)
    one = VType(type.dtype)
    name = element(type.dtype)
    numbers = ", ".join(f"{name} {constant(one, lane)}" for lane in range(type.lanes))
    return Reg(code, f"<{numbers}>", type)


def lane_mask(code: Code, count: Reg, lanes: int) -> Reg:
    """Return a mask of lanes below `count` (i64): none when negative, all when large."""
    if lanes == 1:
        return count.compare("sgt", 0)
    narrow = I32 if lanes <= 16 or lanes > 127 else I8
    clamped = code.intrinsic("smin", count, count.like(lanes))
    clamped = code.intrinsic("smax", clamped, count.like(0))
    limit = code.splat(code.convert("trunc", clamped, narrow), lanes)
    return iota(code, VType(narrow, lanes)).compare("slt", limit)


def extract(code: Code, value: Reg, lane: Reg) -> Reg:
    """Extract one lane, by a constant or computed number; a scalar has only itself."""
    if value.lanes == 1:
        return value
    return code.result(f"extractelement {value.typed}, {lane.typed}", VType(value.dtype))


def slice_lanes(value: Reg, start: int, lanes: int) -> Reg:
    """Return lanes start, start + 1, ... of a vector; one lane is a scalar."""
    code = value.code
    if lanes == 1:
        return extract(code, value, code.const(VType(I64), start))
    return shuffle(value, value, range(start, start + lanes))


def concat(a: Reg, b: Reg) -> Reg:
    """Concatenate the lanes of `a` and those of `b`."""
    code = a.code
    if a.lanes == 1 and b.lanes == 1:
        type = VType(a.dtype, 2)
        first = code.result(f"insertelement {llvm_type(type)} poison, {a.typed}, i64 0", type)
        return code.result(f"insertelement {first.typed}, {b.typed}, i64 1", type)
    lanes = max(a.lanes, b.lanes)
    order = [*range(a.lanes), *range(lanes, lanes + b.lanes)]
    return shuffle(_widen(a, lanes), _widen(b, lanes), order)


def interleave(a: Reg, b: Reg, half: int) -> Reg:
    """Interleave the lower or upper half of the lanes of both: a0, b0, a1, b1, ..."""
    lanes = range(a.lanes // 2 * half, a.lanes // 2 * (half + 1))
    return shuffle(a, b, [lane + side * a.lanes for lane in lanes for side in (0, 1)])


def _widen(value: Reg, lanes: int) -> Reg:
    """Return the same first lanes in a longer vector; the others are unspecified."""
    if value.lanes == lanes:
        return value
    code, type = value.code, VType(value.dtype, lanes)
    if value.lanes == 1:
        return code.result(f"insertelement {llvm_type(type)} poison, {value.typed}, i64 0", type)
    return shuffle(value, value, [lane % value.lanes for lane in range(lanes)])


def shuffle(a: Reg, b: Reg, order: range | list[int]) -> Reg:
    """Pick lanes by number from those of `a` followed by those of `b`."""
    mask = ", ".join(f"i32 {lane}" for lane in order)
    text = f"shufflevector {a.typed}, {b.typed}, <{len(order)} x i32> <{mask}>"
    return a.code.result(text, VType(a.dtype, len(order)))


_FOLD: dict[str, arithmetic.Binary] = {
    "reduce_add": arithmetic.add,
    "reduce_mul": arithmetic.mul,
    "reduce_max": arithmetic.maximum,
    "reduce_min": arithmetic.minimum,
    "reduce_and": operator.and_,
    "reduce_or": operator.or_,
}


def reduce(op: str, value: Reg) -> Reg:
    """Fold the lanes: the upper half onto the lower, until one is left.

    With an odd number of lanes the middle one waits for the next round.
    """
    fold: Callable[[Reg, Reg], Reg] = _FOLD[op]
    if value.dtype == BOOL and value.lanes > 1:
        return _reduce_bits(op, value)
    while value.lanes > 1:
        half = (value.lanes + 1) // 2
        rest = value.lanes - half
        low, high = slice_lanes(value, 0, half), slice_lanes(value, half, rest)
        if rest == half:
            value = fold(low, high)
        else:
            folded = fold(slice_lanes(low, 0, rest), high)
            value = concat(folded, slice_lanes(low, rest, 1))
    return value


def _reduce_bits(op: str, value: Reg) -> Reg:
    name = "and" if op in ("reduce_and", "reduce_min", "reduce_mul") else "or"
    full = f"llvm.vector.reduce.{name}.v{value.lanes}i1"
    value.code.module.declare(full, "i1", [llvm_type(value.type)])
    return value.code.call(full, VType(BOOL), value)


def in_pieces(instruction: Callable[..., Reg], lanes: int, *arguments: Reg) -> Reg:
    """Apply an instruction on `lanes` lanes to arguments that have a multiple of them."""
    if arguments[0].lanes == lanes:
        return instruction(*arguments)
    starts = range(0, arguments[0].lanes, lanes)
    return joined([instruction(*(slice_lanes(a, at, lanes) for a in arguments)) for at in starts])


def joined(parts: list[Reg]) -> Reg:
    """Concatenate the lanes of all parts."""
    while len(parts) > 1:
        pairs = [concat(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]

"""Masks that can be computed while compiling never reach LLVM's masked memory operations.

LLVM 22 has been seen to go wrong there: with AVX2 a constant mask that came from a comparison with
zero loses its canonical form and lanes that are off are loaded; with AVX-512 a truncating store of
one known lane writes the whole element. A known first part of the lanes is faster plain anyway.
"""

from __future__ import annotations

import re

from kernelmill.codegen.code import Code, Reg
from kernelmill.codegen.llvm_types import vector
from kernelmill.codegen.vectors import shuffle, slice_lanes
from kernelmill.core.dtype import BOOL, I64
from kernelmill.kernel.ir import VType

_NAMES = re.compile(r"%[\w.]+")
_COMPUTED = re.compile(
    r"(f?add|f?sub|f?mul|and|or|xor|shl|[al]shr|fneg|icmp|fcmp|select|[sz]ext|trunc|bitcast"
    r"|[su]itofp|fpto[su]i|fp(ext|trunc)|insertelement|extractelement|shufflevector) "
    r"|call .*@llvm\.([su](min|max)|f?abs)\."
)
"""What LLVM folds when all operands are literals."""


def first_lanes(code: Code, count: int, lanes: int) -> Reg:
    """Return the literal mask that has the first `count` lanes on."""
    type = VType(BOOL, lanes)
    if lanes == 1 or count <= 0 or count >= lanes:
        return code.const(type, count > 0)
    bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return Reg(code, f"<{bits}>", type)


def known_first(mask: Reg | None) -> int | None:
    """Return how many first lanes a literal mask has on; None for any other argument."""
    if mask is None or mask.text.startswith("%"):
        return None
    if mask.text.startswith("<"):
        return mask.text.count("true")
    return mask.lanes if "true" in mask.text else 0


def hidden(mask: Reg) -> Reg:
    """Return the mask in a form that LLVM cannot compute even if it is made of literals alone."""
    code, lanes = mask.code, mask.lanes
    if lanes == 1 or not _is_computable(mask):
        return mask
    parts = [_hidden_part(slice_lanes(mask, at, min(64, lanes - at))) for at in range(0, lanes, 64)]
    whole = parts[0]
    for part in parts[1:]:
        whole = shuffle(whole, part, range(whole.lanes + part.lanes))
    return Reg(code, whole.text, mask.type)


def _hidden_part(mask: Reg) -> Reg:
    code, lanes = mask.code, mask.lanes
    number = code.result(f"bitcast {mask.typed} to i{lanes}", VType(I64))
    if lanes < 64:
        number = code.result(f"zext i{lanes} {number.text} to i64", VType(I64))
    number = Reg(code, code.opaque(f"i64 {number.text}"), VType(I64))
    if lanes < 64:
        number = code.result(f"trunc i64 {number.text} to i{lanes}", VType(I64))
    text = f"bitcast i{lanes} {number.text} to {vector('i1', lanes)}"
    return code.result(text, mask.type)


def _is_computable(value: Reg) -> bool:
    """Return True when nothing that the value is computed from is read or passed in."""
    if not value.text.startswith("%"):
        return True
    waiting, seen = [value.text], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        text = value.code.definitions.get(name, "")
        if not _COMPUTED.match(text):
            return False
        waiting.extend(_NAMES.findall(text))
    return True


def widened(value: Reg, lanes: int) -> Reg:
    """Return a mask of the same first lanes, and zeros up to `lanes`."""
    code, type = value.code, VType(value.dtype, lanes)
    zeros = code.const(type, 0)
    if value.lanes == 1:
        return code.result(f"insertelement {zeros.typed}, {value.typed}, i64 0", type)
    order = [min(lane, value.lanes) for lane in range(lanes)]
    return shuffle(value, code.const(value.type, 0), order)

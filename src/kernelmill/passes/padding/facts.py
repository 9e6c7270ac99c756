"""Facts about a value: its axes, its sign, and the contents of its padding.

Facts assume that arguments and weights are finite, and that nothing overflows. Then 0 * x is 0,
unless an operator makes an infinity or NaN of finite numbers. The sign shows where that is
impossible: division by a positive number, for example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite, isnan
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, provably_nonnegative
from kernelmill.core.dtype import DType, to_torch
from kernelmill.graph.eager import EAGER
from kernelmill.graph.ir import Image, Node, ZeroSign
from kernelmill.graph.ops import OPS
from kernelmill.passes.padding.axes import Axis, Factor, Number, Padded, align

POSITIVE, NONNEGATIVE, FINITE, LOW, ANY = range(5)
"""Signs: finite and above zero, finite and not below, finite, finite or negative infinity, and all
else. Larger says less."""


@dataclass(frozen=True)
class Known:
    """Facts about one value: `axes` for each dim, `sign` of every element, and the one number that
    all elements are (`constant`). `fixed`: it depends on sizes and weights only. `masked`: it
    depends on an argument that the user named as a mask."""

    axes: tuple[Axis, ...]
    sign: int = ANY
    constant: Number | None = None
    fixed: bool = False
    masked: bool = False

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(factor for axis in self.axes for factor in axis)


def of_number(number: Number) -> int:
    """Return the sign of one number."""
    if not isfinite(number):
        return LOW if number == -inf else ANY
    return POSITIVE if number > 0 else NONNEGATIVE if number == 0 else FINITE


def of_product(sign: int) -> int:
    """Return the sign of a product of elements of this sign; a small one may become zero."""
    return max(sign, NONNEGATIVE) if sign <= FINITE else ANY


def together(operands: Sequence[Known], axes: Sequence[Axis], **facts: Any) -> Known:
    """Return the facts of a value computed from the operands, with these axes."""
    fixed = all(known.fixed for known in operands)
    return Known(tuple(axes), fixed=fixed, masked=any(k.masked for k in operands), **facts)


def join_axes(padded: Padded, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Join axes of one size, cut alike. Raises Refusal."""
    first = axes[0]
    for other in axes[1:]:
        first, _ = align(padded, first, other)
    return tuple(align(padded, axis, first)[0] for axis in axes)


def joined(factors: Sequence[Factor]) -> Factor:
    """Return the factor of a pointwise result from its operands' factors, without facts."""
    kinds = {factor.kind for factor in factors}
    kind = next(kind for kind in ("padded", "clean", "uniform") if kind in kinds)
    return Factor(factors[0].size, kind)


# ---- pointwise ------------------------------------------------------------------------------


def pointwise(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    """Return the facts of a pointwise node. Raises Refusal if operands are padded differently."""
    rank = len(operands[0].axes)
    columns = [join_axes(padded, [known.axes[d] for known in operands]) for d in range(rank)]
    aligned = [
        replace(known, axes=tuple(column[i] for column in columns))
        for i, known in enumerate(operands)
    ]
    axes: list[Axis] = []
    position = 0
    for column in columns:
        axis: list[Factor] = []
        for factors in zip(*column, strict=True):
            axis.append(_with_facts(node, joined(factors), position, aligned))
            position += 1
        axes.append(tuple(axis))
    constants = [known.constant for known in operands]
    constant = None if None in constants else _folded(node, [c for c in constants if c is not None])
    sign = _sign(node, operands) if constant is None else of_number(constant)
    return together(operands, axes, sign=sign, constant=constant)


def _with_facts(node: Node, factor: Factor, position: int, operands: Sequence[Known]) -> Factor:
    index = _index(node, position, operands)
    if factor.kind != "padded":
        return replace(factor, index=index)
    fills = [_fill(known, known.factors[position]) for known in operands]
    fill = _together(node, fills, operands)
    if fill is None and node.op in _LARGER:
        fill = _compared(node, position, operands)
    number, strong = (None, True) if fill is None else fill
    return replace(factor, fill=number, strong=strong, index=index)


_Fill = tuple[Number, bool]


def _fill(known: Known, factor: Factor) -> _Fill | None:
    if known.constant is not None:
        return known.constant, True
    return None if factor.fill is None else (factor.fill, factor.strong)


def _together(node: Node, fills: Sequence[_Fill | None], operands: Sequence[Known]) -> _Fill | None:
    """Return the result where the operands are these numbers or, where None, unknown."""
    sure = [fill for fill in fills if fill is not None]
    if len(sure) == len(fills):
        number = _folded(node, [fill[0] for fill in sure])
        return None if number is None else (number, all(strong for _, strong in sure))
    if node.op == "where":
        condition = fills[0]
        chosen = None if condition is None else fills[1 if condition[0] else 2]
        if condition is None or chosen is None:
            return None
        return chosen[0], condition[1] and chosen[1]
    for fill, other in zip(fills, (*reversed(operands),), strict=True):
        if fill is not None and len(fills) == 2 and _absorbs(node, fill[0], other):
            return fill
    return None


def _absorbs(node: Node, number: Number, other: Known) -> bool:
    """Return whether the result is this operand's number whatever the other one is."""
    dtype = node.operands[0].dtype
    match node.op:
        case "mul" | "bit_and":
            return number == 0 and (not dtype.is_float or other.sign <= FINITE)
        case "bit_or":
            return number == 1 and dtype.kind == "bool"
        case "add":
            return dtype.is_float and number == -inf and other.sign <= LOW
        case _:
            return False


def _folded(node: Node, numbers: Sequence[Number]) -> Number | None:
    """Compute the node on numbers; None for NaN, and where the sign of a zero may matter."""
    matters = OPS[node.op].zero_sign
    looked_at = numbers[-1:] if matters is ZeroSign.DIVISOR else numbers
    if matters is not ZeroSign.NONE and node.operands[0].dtype.is_float and 0 in looked_at:
        return None
    operands = [
        torch.tensor(number, dtype=to_torch(operand.dtype))
        for number, operand in zip(numbers, node.operands, strict=True)
    ]
    number = EAGER[node.op](operands, node.attrs).item()
    return None if isnan(number) else number


# ---- indices --------------------------------------------------------------------------------


def _index(node: Node, position: int, operands: Sequence[Known]) -> Dim | None:
    """Return the number to add to this factor's index to have the value."""
    if not node.result.dtype.is_integer:
        return None
    offset = operands[0].factors[position].index
    if node.op == "cast":
        whole = node.operands[0].dtype.is_integer and node.result.dtype.bits >= 32
        return offset if whole else None
    if node.op not in ("add", "sub") or len(operands) != 2:
        return None
    other = operands[1].constant
    if offset is not None and isinstance(other, int):
        return offset + other if node.op == "add" else offset - other
    if node.op == "add" and isinstance(operands[0].constant, int):
        offset = operands[1].factors[position].index
        return None if offset is None else offset + operands[0].constant
    return None


_LARGER = {"gt": True, "ge": True, "ne": True, "lt": False, "le": False, "eq": False}
_SMALLER = {"lt": True, "le": True, "ne": True, "gt": False, "ge": False, "eq": False}


def _compared(node: Node, position: int, operands: Sequence[Known]) -> _Fill | None:
    """Compare one index with another: where this one is not kept and the other is, this one is the
    larger, so that a causal mask hides the padding from every kept row."""
    for mine, other, outcome in ((0, 1, _LARGER), (1, 0, _SMALLER)):
        factor = operands[mine].factors[position]
        for place, against in enumerate(operands[other].factors):
            if factor.index is None or against.index is None or place == position:
                continue
            # index >= size on this side, index <= size - 1 on the other
            margin = factor.size + factor.index - against.size - against.index
            if provably_nonnegative(margin):
                return outcome[node.op], False
    return None


# ---- signs ----------------------------------------------------------------------------------


def _sign(node: Node, operands: Sequence[Known]) -> int:
    found = _sign_of(node, [known.sign for known in operands], operands[-1].constant)
    dtype = node.result.dtype
    if dtype.is_float:
        return found
    return min(found, FINITE if dtype.kind == "int" else NONNEGATIVE)


def _sign_of(node: Node, signs: Sequence[int], last: Number | None) -> int:
    low, high = min(signs), max(signs)
    match node.op:
        case "maximum":
            return low if high <= LOW else ANY
        case "minimum":
            return high
        case "sub" if signs[1] <= FINITE:
            return max(FINITE, signs[0])
        case "exp" | "exp2" if high <= LOW:
            return NONNEGATIVE
        case "where":
            return max(signs[1:])
        case "add":
            return high if high > NONNEGATIVE else low
        case "mul" if node.operands[0] is node.operands[1]:
            return NONNEGATIVE if high <= FINITE else ANY
        case "mul" if last is not None and of_number(last) == POSITIVE:
            return max(signs[0], NONNEGATIVE)
        case "mul":
            return of_product(high)
        case "sqrt":
            return high if high <= NONNEGATIVE else ANY
        case "rsqrt" | "reciprocal":
            return POSITIVE if high == POSITIVE else ANY
        case "log" | "log2" | "log10":
            return FINITE if high == POSITIVE else ANY
        case "log1p":
            return high if high <= NONNEGATIVE else ANY
        case "div":
            return _quotient(signs[0], signs[1], last)
        case "mod":
            return NONNEGATIVE if signs[0] <= FINITE and signs[1] == POSITIVE else ANY
        case "pow":
            return _power(signs[0], last)
        case "cast":
            return _cast(node.operands[0].dtype, node.result.dtype, high)
        case op:
            return _IMAGES[OPS[op].image] if high <= FINITE else ANY


_IMAGES = {Image.ANY: ANY, Image.FINITE: FINITE, Image.NONNEGATIVE: NONNEGATIVE}


def _quotient(above: int, below: int, divisor: Number | None) -> int:
    if below == POSITIVE:
        return max(above, NONNEGATIVE)
    return FINITE if divisor and isfinite(divisor) and above <= FINITE else ANY


def _power(base: int, exponent: Number | None) -> int:
    if exponent is None or exponent < 0 or not isfinite(exponent):
        return ANY
    if base <= NONNEGATIVE or exponent % 2 == 0:
        return NONNEGATIVE if base <= FINITE else ANY
    return base if exponent % 1 == 0 else ANY


def _cast(source: DType, target: DType, sign: int) -> int:
    if (source.is_float and target.bits < source.bits) or not target.is_float:
        return max(sign, NONNEGATIVE)  # what is small becomes zero
    return sign

"""Sources, views and scans over padded values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from typing import Any

import torch

from kernelmill.core.dim import Dim, bounds, provably_nonnegative
from kernelmill.core.dtype import to_torch
from kernelmill.graph.ir import Node
from kernelmill.passes.padding.axes import (
    Axis,
    Factor,
    Number,
    Padded,
    Unproven,
    holds,
    mapped,
    regroup,
)
from kernelmill.passes.padding.facts import (
    FINITE,
    NONNEGATIVE,
    POSITIVE,
    Known,
    join_axes,
    joined,
    of_number,
    of_product,
    together,
)

# ---- sources --------------------------------------------------------------------------------


def full(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    """Return the facts of one number everywhere."""
    filled = torch.full((), node.attrs["value"], dtype=to_torch(node.result.dtype))  # type: ignore[reportArgumentType]
    value = filled.item()
    axes = tuple(_uniform(size) for size in node.result.shape)
    return Known(axes, of_number(value), None if isnan(value) else value, fixed=True)


def iota(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    """Return facts of the dim's index: a prefix of a longer one."""
    dim, shape = node.attrs["dim"], node.result.shape
    axes = [_uniform(size) for size in shape]
    assert isinstance(dim, int)
    axes[dim] = tuple(replace(factor, index=0) for factor in padded.axis(shape[dim]))
    return Known(tuple(axes), NONNEGATIVE, None if axes[dim] else 0, fixed=True)


def dim_value(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    """Return facts of a size as a number, which must be the true one."""
    value: Any = node.attrs["value"]
    if padded.depends(value):
        raise Unproven(f"computes with the size {value}, which is the padded one")
    low = bounds(value)[0]
    sign = FINITE if low is None or low < 0 else POSITIVE if low > 0 else NONNEGATIVE
    return Known((), sign, value if isinstance(value, int) else None, fixed=True)


def _uniform(size: Dim) -> Axis:
    return () if size == 1 else (Factor(size, "uniform"),)


# ---- views ----------------------------------------------------------------------------------


def expand(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    (x,) = operands
    have, want = node.operands[0].shape, node.result.shape
    new = len(want) - len(have)
    axes = [_uniform(size) for size in want[:new]]
    for axis, before, after in zip(x.axes, have, want[new:], strict=True):
        axes.append(axis if before == after else _uniform(after))
    return replace(x, axes=tuple(axes))


def permute(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    dims: Any = node.attrs["dims"]
    return replace(operands[0], axes=tuple(operands[0].axes[d] for d in dims))


def reshape(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    axes = regroup(padded, operands[0].axes, node.result.shape)
    return replace(operands[0], axes=axes)


def layout(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    return operands[0]


def cut(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    """Return a slice's facts: its start must not move with the size, its elements must be kept."""
    (x,) = operands
    start, end, step = (_dim(node.attrs[name]) for name in ("start", "end", "step"))
    dim: Any = node.attrs["dim"]
    size, fresh = node.operands[0].shape[dim], node.result.shape[dim]
    axis = x.axes[dim]
    if (start, end, step) == (0, size, 1):
        return x
    if all(factor.kind == "uniform" for factor in axis):
        return _with_axis(x, dim, _uniform(fresh))
    if padded.depends(start, step):
        raise Unproven(f"starts at {start}, counted from the end of what is padded")
    first = padded.prefix(axis)
    if first is not None and not provably_nonnegative(first.size - end):
        raise Unproven(f"takes elements up to {end} of {first.size}, which may be padding")
    fresh_axis = padded.axis(fresh)
    if first is not None and end == size:
        fresh_axis = padded.axis(fresh, first.fill, first.strong)
    index = axis[0].index if len(axis) == 1 else None
    if index is not None and step == 1:
        fresh_axis = tuple(replace(factor, index=index + start) for factor in fresh_axis)
    return _with_axis(x, dim, fresh_axis)


def _dim(value: Any) -> Dim:
    return value


def flip(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    dims: Any = node.attrs["dims"]
    (x,) = operands
    for d in dims:
        if any(f.kind == "padded" for f in x.axes[d]):
            raise Unproven("turns a padded dim round, so that the padding comes first")
    return replace(x, axes=_without_index(x.axes))


def pad(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    """Return the facts of a pad, whose elements behind replace padding and must be the same."""
    (x,) = operands
    lows: Any = node.attrs["low"]
    highs: Any = node.attrs["high"]
    value: Any = node.attrs["value"]
    if not any((*lows, *highs)):
        return x
    axes: list[Axis] = []
    for axis, low, high, size in zip(x.axes, lows, highs, node.result.shape, strict=True):
        if (low, high) == (0, 0):
            axes.append(_only_fill(axis, value))
            continue
        if padded.depends(low):
            raise Unproven(f"pads {low} elements in front, which depends on a padded size")
        first = padded.prefix(axis)
        if first is None:
            axes.append(padded.axis(size, value))
        elif high == 0 or holds(padded, x.axes, first, value):
            fill = first.fill if first.fill == value else None
            axes.append(padded.axis(size, fill, first.strong))
        else:
            raise Unproven("pads the end of a dim that is padded itself")
    constant = x.constant if x.constant == value else None
    sign = max(x.sign, of_number(value))
    return replace(x, axes=tuple(axes), constant=constant, sign=sign)


def concat(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    """Return the facts of joined parts: only the last may be padded, others would move."""
    dim: Any = node.attrs["dim"]
    sizes = [operand.shape[dim] for operand in node.operands]
    if any(padded.depends(size) for size in sizes[:-1]):
        raise Unproven("joins something behind a padded dim")
    axes: list[Axis] = []
    for d, size in enumerate(node.result.shape):
        if d == dim:
            last = padded.prefix(operands[-1].axes[d])
            fill, strong = (None, True) if last is None else (last.fill, last.strong)
            axes.append(padded.axis(size, fill, strong))
            continue
        parts = join_axes(padded, [known.axes[d] for known in operands])
        axes.append(tuple(_common(factors) for factors in zip(*parts, strict=True)))
    return together(operands, axes, sign=max(known.sign for known in operands))


def _common(factors: Sequence[Factor]) -> Factor:
    """Return a factor of all parts; with a fill where all have the same."""
    fills = {(f.fill, f.strong) for f in factors}
    fill, strong = fills.pop()
    return joined(factors) if fills else replace(joined(factors), fill=fill, strong=strong)


def window(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    """Return the facts of windows: kept positions see kept elements, or padding of the value that
    the end is padded with anyway."""
    (x,) = operands
    value: Any = node.attrs["value"]
    dims: Any = node.attrs["dims"]
    lows: Any = node.attrs["low"]
    highs: Any = node.attrs["high"]
    sizes: Any = node.attrs["size"]
    axes = [_only_fill(axis, value) for axis in x.axes]
    for d, low, high, size in zip(dims, lows, highs, sizes, strict=True):
        if padded.depends(low, high, size):
            raise Unproven("has windows whose size depends on a padded one")
        first = padded.prefix(x.axes[d])
        if first is not None and high and not holds(padded, x.axes, first, value):
            raise Unproven("has windows that reach over the end of a padded dim")
        axes[d] = padded.axis(node.result.shape[d])
    axes += [padded.axis(size) for size in sizes]
    bare = not any((*lows, *highs))
    sign = x.sign if bare else max(x.sign, of_number(value))
    constant = x.constant if bare or x.constant == value else None
    return replace(x, axes=tuple(axes), sign=sign, constant=constant)


# ---- scans ----------------------------------------------------------------------------------


def scan(padded: Padded, node: Node, operands: Sequence[Known]) -> Known:
    """Return a scan's facts: elements depend on earlier ones, which are kept if they are."""
    (x,) = operands
    dim: Any = node.attrs["dim"]
    first = padded.prefix(x.axes[dim])
    neutral = 0 if node.op == "cumsum" else 1
    whole = first is None

    def kept(factor: Factor) -> Factor:
        keeps = factor.fill == neutral and (whole or factor.strong)
        return replace(factor, fill=neutral if keeps else None, index=None)

    axes = list(mapped(x.axes, kept))
    axes[dim] = padded.axis(node.result.shape[dim])
    sign = x.sign if node.op == "cumsum" else of_product(x.sign)
    return replace(x, axes=tuple(axes), sign=sign, constant=None)


# ---- shared ---------------------------------------------------------------------------------


def _with_axis(x: Known, dim: int, axis: Axis) -> Known:
    return replace(x, axes=(*x.axes[:dim], axis, *x.axes[dim + 1 :]))


def _without_index(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return mapped(axes, lambda factor: replace(factor, index=None))


def _only_fill(axis: Axis, value: Number) -> Axis:
    """Return the facts about an axis after other elements, of this value, were put beside it."""
    return tuple(replace(f, index=None, fill=f.fill if f.fill == value else None) for f in axis)

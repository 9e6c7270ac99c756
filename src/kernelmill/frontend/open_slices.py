"""Slices whose ends may be negative: lengths and starts, open in torch, follow from sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from kernelmill.core.dim import Dim, Expr, bounds, ceildiv, maximum
from kernelmill.core.scalar import Apply
from kernelmill.frontend.context import ImportContext
from kernelmill.frontend.symbols import SymbolTable

_Part = tuple[int, Dim, Dim | None]
"""The dim of a slice or selection, its start, and its length (None: a selection)."""


def _slice(
    symbols: SymbolTable,
    sizes: tuple[Dim, ...],
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: Dim = 1,
) -> _Part:
    size = sizes[dim]
    first = 0 if start is None else symbols.clamped(start, size)
    last = size if end is None or end == sys.maxsize else symbols.clamped(end, size)
    return dim, first, ceildiv(maximum(last - first, 0), step)


def _select(symbols: SymbolTable, sizes: tuple[Dim, ...], dim: int, index: Dim) -> _Part:
    behind = Apply("sum", (sizes[dim], index))
    place = symbols.computed(Apply("either", (Apply("lt", (index, 0)), behind, index)))
    return dim, maximum(place, 0), None  # the operator refuses a negative one


_PARTS: dict[Any, Callable[..., _Part]] = {
    torch.ops.aten.slice.Tensor: _slice,
    torch.ops.aten.select.int: _select,
}


def settle(context: ImportContext, node: fx.Node) -> None:
    """Define torch's symbols for the length and the offset of a slice or a selection."""
    find = _PARTS.get(node.target)
    if find is None or (find is _select and not node.meta.get("unbacked_bindings")):
        return
    given = [context.argument(value) for value in node.args[1:]]
    named = {name: context.argument(value) for name, value in node.kwargs.items()}
    if not any(map(_may_have_either_sign, (*given, *named.values()))):
        return
    symbols, operand = context.symbols, node.args[0]
    assert isinstance(operand, fx.Node)
    whole: torch.Tensor = operand.meta["val"]
    part: torch.Tensor = node.meta["val"]
    dim, first, length = find(symbols, symbols.dims(whole.shape), *given, **named)
    place = symbols.dim(whole.storage_offset()) + first * symbols.dim(whole.stride(dim))
    symbols.define(part.storage_offset(), place)
    if length is not None:
        symbols.define(part.shape[dim], length)
        symbols.require_equal(symbols.dim(part.shape[dim]), length)


def _may_have_either_sign(index: object) -> bool:
    low, high = bounds(index) if isinstance(index, Expr) else (0, 0)
    return (low is None or low < 0) and (high is None or high >= 0)

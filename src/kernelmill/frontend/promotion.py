"""Type promotion as eager computes it: tensors with dims, then 0-d tensors, then numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Union

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Expr
from kernelmill.core.dtype import BOOL, I64, DType, from_torch, to_torch
from kernelmill.graph.ir import Value


@dataclass(frozen=True)
class WeakFloat:
    """A Python float known only while running: a 0-d f64 value that promotes like a number."""

    value: Value


Number = Union[bool, int, float, Expr, WeakFloat]
"""Expr: a Python integer known only while running."""
Operand = Union[Value, Number]


def default_float() -> DType:
    """The dtype of a float tensor made from Python numbers."""
    found = from_torch(torch.get_default_dtype())
    assert found is not None
    return found


def number_dtype(number: Number) -> DType:
    """The dtype that a Python number has when nothing else decides."""
    if isinstance(number, bool):
        return BOOL
    return I64 if isinstance(number, (int, Expr)) else default_float()


def promote(operands: Iterable[Operand]) -> DType:
    """The common dtype of an elementwise operator's operands.

    Rule: torch.result_type (documentation "Tensor Attributes", type promotion): a lower group
    (0-d tensors, numbers) changes the result only when its kind (bool, integer, float) is higher.
    """
    groups: list[DType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Value):
            group, dtype = (0 if operand.shape else 1), operand.dtype
        else:
            group, dtype = 2, number_dtype(operand)
        known = groups[group]
        groups[group] = dtype if known is None else join(known, dtype)
    result: DType | None = None
    for dtype in groups:
        if dtype is not None and (result is None or _rank(dtype) > _rank(result)):
            result = dtype if result is None else join(result, dtype)
    assert result is not None
    return result


def join(a: DType, b: DType) -> DType:
    """torch.promote_types of two computable dtypes."""
    if a == b:
        return a
    found = from_torch(torch.promote_types(to_torch(a), to_torch(b)))
    assert found is not None
    return found


def _rank(dtype: DType) -> int:
    return 3 if dtype.is_opaque else 2 if dtype.is_float else 1 if dtype.is_integer else 0

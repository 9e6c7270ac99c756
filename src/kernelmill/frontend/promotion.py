"""Type promotion as eager computes it: tensors with dims, then 0-d tensors, then numbers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Union, cast

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Expr
from kernelmill.core.dtype import BOOL, I64, DType, from_torch, to_torch
from kernelmill.core.scalar import Scalar
from kernelmill.frontend.registry import NotTranslated
from kernelmill.graph.ir import Value


@dataclass(frozen=True, eq=False)
class Computed:
    """A Python number known only while running, of kind "float" or "bool": its expression, or the
    0-d value that it was read from. It has no truth value during import."""

    kind: str
    scalar: Scalar | None
    value: Value | None = None

    def __bool__(self) -> bool:
        raise NotTranslated("a number known only while running decides")


Number = Union[bool, int, float, Expr, Computed]
"""Expr: a Python integer known only while running."""
Operand = Union[Value, Number]


def default_float() -> DType:
    """Return the dtype of a float tensor made from Python numbers."""
    found = from_torch(torch.get_default_dtype())
    assert found is not None
    return found


def number_dtype(number: Number) -> DType:
    """Return the dtype of a Python number without operands of other dtypes."""
    if isinstance(number, bool) or (isinstance(number, Computed) and number.kind == "bool"):
        return BOOL
    return I64 if isinstance(number, (int, Expr)) else default_float()


def promote(operands: Iterable[Operand]) -> DType:
    """Return the common dtype of an elementwise operator's operands. Rule: torch.result_type
    (documentation "Tensor Attributes", type promotion): a lower group (0-d tensors, numbers)
    changes the result only when its kind (bool, integer, float) is higher."""
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
    """Return torch.promote_types of two computable dtypes."""
    if a == b:
        return a
    found = from_torch(torch.promote_types(to_torch(a), to_torch(b)))
    assert found is not None
    return found


def _rank(dtype: DType) -> int:
    return 3 if dtype.is_opaque else 2 if dtype.is_float else 1 if dtype.is_integer else 0


_ANY_NUMBER = re.compile(r"\b(Any|Number|Operand|object)\b")
_ANY_INTEGER = re.compile(r"\bDims?\b")


def require_known(
    translate: Callable[..., object], arguments: Sequence[object], named: Mapping[str, object]
) -> None:
    """Raise NotTranslated if a number known only while running is passed to a parameter that is not
    annotated for one."""
    numbers = (Expr, Computed)
    given = [*arguments, *named.values()]
    if not any(isinstance(leaf, numbers) for each in given for leaf in _leaves(each)):
        return
    signature = _signature(translate)
    for name, value in signature.bind(None, *arguments, **named).arguments.items():
        found = [leaf for leaf in _leaves(value) if isinstance(leaf, numbers)]
        annotation = str(signature.parameters[name].annotation) if found else ""
        whole = _ANY_INTEGER.search(annotation) and all(isinstance(n, Expr) for n in found)
        if found and not whole and not _ANY_NUMBER.search(annotation):
            raise NotTranslated(f"{name} is known only while running")


@cache
def _signature(translate: Callable[..., object]) -> inspect.Signature:
    return inspect.signature(translate)


def _leaves(value: object) -> Iterable[object]:
    if isinstance(value, (list, tuple)):
        return [leaf for part in cast(Sequence[object], value) for leaf in _leaves(part)]
    if isinstance(value, dict):
        return _leaves(list(cast(Mapping[str, object], value).values()))
    return (value,)

"""Which operators AOTAutograd takes apart before we see them.

The long tail goes through torch's own decompositions. Kept whole are the operators that have a
translation, which say more than their parts do, and the ones that draw random numbers: a
decomposition of those draws other numbers than eager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

import kernelmill.frontend.aten as _translators
from kernelmill.frontend.registry import translator_of
from kernelmill.frontend.resizing import resizing
from kernelmill.torch_internals.decompositions import lying_as_operand, torch_table

_TRANSLATORS = _translators  # imported for what it registers
_aten = torch.ops.aten

_BEYOND_CORE = (
    _aten.frexp,
    _aten.ldexp,
    _aten.rrelu_with_noise_backward,
    _aten.tril_indices,
    _aten.triu_indices,
    _aten.upsample_bicubic2d.default,
    _aten.upsample_bilinear2d,
    _aten.upsample_nearest2d,
    _aten.upsample_trilinear3d,
    _aten.dist,
)
"""Operators that torch counts as core but can take apart, and that we would leave to ATen."""


_LEFT_TO_ATEN = (
    _aten.addr,
    _aten.linspace,
    _aten.logspace,
)
"""Operators whose decomposition rounds half types, or integers, otherwise than eager does."""


_ROW_MAJOR = {_aten.max_unpool2d.default, _aten.channel_shuffle.default}
"""Operators whose decomposition has row-major results, where eager's lie as the operand does."""


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Torch's own takes an index without dims for a number, whose value tracing does not know."""
    return _aten.index.Tensor(x.reshape(-1), [index])


_MEAN = 1
"""The number that losses have for reduction="mean"."""


def _smooth_l1_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    """Torch's own takes the sign of a difference that is NaN, which is 0, where eager gives NaN."""
    norm = 1.0 / x.numel() if reduction == _MEAN else 1.0
    wide = torch.promote_types(grad.dtype, torch.float32)
    difference = x.to(wide) - target.to(wide)
    one = torch.ones_like(difference)
    side = torch.where(difference > 0, one, -one)
    slope = torch.where(difference.abs() >= beta, side, difference / beta)
    return (norm * slope * grad.to(wide)).to(grad.dtype)


def _unfold_backward(
    torchs: Callable[..., Tensor],
    grad: Tensor,
    input_size: list[int],
    dim: int,
    size: int,
    step: int,
) -> Tensor:
    """Torch's own adds each element to a zero, so that -0.0 comes out as 0.0; eager writes it where
    windows do not overlap."""
    if not input_size or step < size:
        return torchs(grad, input_size, dim, size, step)
    dim %= len(input_size)
    places = torch.arange(input_size[dim]).unfold(0, size, step).flatten()
    source = grad.movedim(-1, dim + 1).flatten(dim, dim + 1)
    index = [*[None] * dim, places]
    return _aten.index_put(grad.new_zeros(input_size), index, source)


def _native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    """Eager's dropout of all elements draws no numbers."""
    if p != 1 or train is False:
        return NotImplemented
    return x * 0.0, torch.zeros_like(x, dtype=torch.bool)


@cache
def decomposition_table(exported: bool = False) -> dict[Any, Callable[..., Any]]:
    """Operator overload -> its decomposition. Treat it as read-only.

    For graphs of torch.export, if `exported`, also of operators that are made of others in all
    other traces.
    """
    table = {**torch_table(_BEYOND_CORE, exported), _aten.take.default: _take}
    table[_aten.smooth_l1_loss_backward.default] = _smooth_l1_loss_backward
    unfolded = _aten.unfold_backward.default
    if unfolded in table:
        table[unfolded] = partial(_unfold_backward, table[unfolded])
    for operator in table.keys() & _ROW_MAJOR:
        run = lying_as_operand(table.pop(operator))
        if run is not None:
            table[operator] = run
    table |= resizing(table)
    kept = {_aten.native_dropout.default: _native_dropout}
    return kept | {
        operator: decompose
        for operator, decompose in table.items()
        if translator_of(operator) is None
        and not _draws_random_numbers(operator)
        and getattr(operator, "overloadpacket", None) not in _LEFT_TO_ATEN
    }


def _draws_random_numbers(operator: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())

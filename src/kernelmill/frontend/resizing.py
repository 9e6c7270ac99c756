"""Linear resizing with eager's formula: x * (1 - w) + y * w between neighbours.

Torch's own decomposition has x + (y - x) * w, which is NaN between two infinities of one sign, and
an infinity between two numbers whose difference overflows. AOTAutograd always decomposes resizing
that way; an exported program has it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from kernelmill.torch_internals.decompositions import memory_format_of

_aten = torch.ops.aten
_RESIZING = (_aten.upsample_linear1d, _aten.upsample_bilinear2d, _aten.upsample_trilinear3d)

Decompose = Callable[..., Any]


def resizing(torchs: dict[Any, Decompose]) -> dict[Any, Decompose]:
    """Return decompositions of the resizing overloads that `torchs` has. Integers are left to
    torch's, and so is everything if torch does not expose eager's memory format."""
    if memory_format_of() is None:
        return {}
    made: dict[Any, Decompose] = {}
    for operator in _RESIZING:
        for overload, ours in ((operator.vec, _to_size_or_by_factor), (operator.default, _to_size)):
            if overload in torchs:
                made[overload] = partial(_of_floats, ours, torchs[overload])
    return made


def _of_floats(ours: Decompose, torchs: Decompose, x: Tensor, *args: Any) -> Tensor:
    return (ours if x.is_floating_point() else torchs)(x, *args)


def _to_size_or_by_factor(
    x: Tensor, sizes: Sequence[Any] | None, align: bool, factors: Sequence[float] | None
) -> Tensor:
    if sizes is None:
        sizes = [
            size * int(factor) if factor == int(factor) else torch.sym_int(size * factor)
            for size, factor in zip(x.shape[2:], factors or (), strict=True)
        ]
    return _to_size(x, sizes, align, *(factors or ()))


def _to_size(x: Tensor, sizes: Sequence[Any], align: bool, *factors: float | None) -> Tensor:
    """Resize x of shape [images, channels, *spatial] to these spatial sizes. Given factors, not
    sizes, determine the source positions."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    given = factors or [None] * len(sizes)
    axes = [
        _places(have, size, align, factor, wide)
        for have, size, factor in zip(x.shape[2:], sizes, given, strict=True)
    ]
    spread = [[1] * (len(axes) - 1 - number) for number in range(len(axes))]
    corners = [
        _aten.index.Tensor(
            wide,
            [None, None, *(axis[end].reshape(-1, *ones)
                           for axis, end, ones in zip(axes, ends, spread, strict=True))],
        )
        for ends in product((0, 1), repeat=len(axes))
    ]  # fmt: skip
    for (*_, weight), ones in reversed(list(zip(axes, spread, strict=True))):
        w = weight.reshape(-1, *ones)
        corners = [a * (1 - w) + b * w for a, b in zip(corners[::2], corners[1::2], strict=True)]
    memory_format = memory_format_of()
    assert memory_format is not None
    return corners[0].to(x.dtype).contiguous(memory_format=memory_format(x))


def _places(
    have: Any, size: Any, align: bool, factor: float | None, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return, along one axis, indices of the neighbours before and behind each element of the
    result, and the weight of the second."""
    along = torch.arange(size, device=x.device).to(x.dtype)
    if align:
        place = along * ((have - 1.0) / (size - 1.0) if size > 1 else 0.0)
    else:
        place = (along + 0.5) * (1.0 / factor if factor else have / size) - 0.5
    place = place.clamp(min=0.0)
    before = place.to(torch.int64)
    if isinstance(have, int) and isinstance(size, int) and have == size:
        return before, before, torch.zeros_like(place)  # eager does not look at neighbours then
    behind = (before + 1).clamp(max=have - 1)
    return before, behind, (place - before).clamp(0.0, 1.0)

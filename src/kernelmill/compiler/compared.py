"""Tolerances for comparing results of a kernel with torch's."""

from __future__ import annotations

import torch
from torch import Tensor

RELATIVE = {
    torch.float64: 1e-10,
    torch.float32: 2e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
"""Relative to an element plus the mean size of all, as sums of cancelling terms need."""


def difference(actual: Tensor, expected: Tensor, factor: float = 1.0) -> str:
    """Describe how `actual` differs, or "". NaN equals NaN; integers are exact. `factor` widens."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return (
            f"{actual.dtype} {list(actual.shape)} instead of {expected.dtype} "
            f"{list(expected.shape)}"
        )
    relative = RELATIVE.get(expected.dtype, 0.0) * factor
    wide = torch.float64 if expected.dtype.is_floating_point else expected.dtype
    if expected.dtype.is_complex:
        return difference(torch.view_as_real(actual), torch.view_as_real(expected), factor)
    ours, theirs = actual.to(wide), expected.to(wide)
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    if relative:
        size = theirs.abs()
        finite = size[torch.isfinite(size)]
        mean = finite.mean() if finite.numel() else 0.0
        same |= ((ours - theirs).abs() <= relative * (size + mean)) & torch.isfinite(size)
    if bool(same.all()):
        return ""
    return _described(ours, theirs, same)


def _described(ours: Tensor, theirs: Tensor, same: Tensor) -> str:
    wrong = (~same).nonzero()
    first = tuple(wrong[0].tolist())
    return (
        f"{len(wrong)} of {same.numel()} elements differ; the first is {list(first)}: "
        f"{ours[first].item():.9g} instead of {theirs[first].item():.9g}"
    )

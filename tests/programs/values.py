"""What the tensors of programs hold: numbers that are exact in every dtype, and awkward ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SPECIALS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -1e-42, 1e-7, -6e-8, 1.0, -2.0)
HUGE = (5.3e18, -5.3e18, 1e19, 1.8e19, -2.6e38, 3.3e38, 1e30, -1e38, 65504.0, -6e4, 2.0, 0.5)
"""As fractions of the type's largest number, where that is smaller than float32's."""


def make(
    dtype: torch.dtype,
    shape: Sequence[int],
    fill: str = "whole",
    seed: int = 0,
    wants_gradient: bool = False,
) -> Tensor:
    """A contiguous tensor, the same for the same seed. `fill`: a name in `FILLS`, or "below k" for
    indices from 0 to k - 1."""
    made = _filled(dtype, tuple(shape), fill, torch.Generator().manual_seed(seed))
    return made.requires_grad_(wants_gradient)


def _filled(
    dtype: torch.dtype, shape: tuple[int, ...], fill: str, generator: torch.Generator
) -> Tensor:
    if fill.startswith("below "):
        return torch.randint(0, int(fill[6:]), shape, generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return FILLS[fill](dtype, shape, generator)


def _integers(low: int, high: int) -> Callable[..., Tensor]:
    def fill(dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        floor = 0 if dtype == torch.uint8 else low
        return torch.randint(floor, high, shape, generator=generator).to(dtype)

    return fill


def _normal(dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if not dtype.is_floating_point:
        return _integers(-100, 101)(dtype, shape, generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _among(tensor: Tensor, awkward: Sequence[float], one_in: int, gen: torch.Generator) -> Tensor:
    """Some elements of the tensor replaced by awkward ones."""
    chosen = torch.randint(0, one_in * len(awkward), tensor.shape, generator=gen)
    few = chosen < len(awkward)
    tensor[few] = torch.tensor(awkward).to(tensor.dtype)[chosen[few]]
    return tensor


def _special(dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    whole = _integers(-4, 5)(dtype, shape, generator)
    if dtype.is_floating_point:
        return _among(whole, SPECIALS, 3, generator)
    limits = torch.iinfo(dtype)
    return _among_integers(whole, (limits.min, limits.max, limits.max - 1, 1), generator)


def _among_integers(tensor: Tensor, few: Sequence[int], generator: torch.Generator) -> Tensor:
    chosen = torch.randint(0, 2 * len(few), tensor.shape, generator=generator)
    here = chosen < len(few)
    tensor[here] = torch.tensor(few, dtype=tensor.dtype)[chosen[here]]
    return tensor


def _huge(dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if not dtype.is_floating_point:
        return _special(dtype, shape, generator)
    factor = torch.finfo(dtype).max / torch.finfo(torch.float32).max
    numbers = torch.tensor(HUGE, dtype=torch.float64) * min(1.0, factor)
    chosen = torch.randint(0, len(HUGE), shape, generator=generator)
    # `numbers[chosen]` would be a view of all of them where there are no dims.
    return torch.take(numbers, chosen).to(dtype)


def _masked(dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Zeros and -inf, as additive masks have them; some rows are -inf as a whole."""
    if not dtype.is_floating_point:
        return _integers(0, 2)(dtype, shape, generator)
    hidden = torch.randint(0, 2, shape, generator=generator).bool()
    rows = torch.randint(0, 3, (*shape[:-1], 1), generator=generator) == 0
    return torch.zeros(shape, dtype=dtype).masked_fill(hidden | rows, -math.inf)


FILLS: dict[str, Callable[..., Tensor]] = {
    "whole": _integers(-4, 5),
    "ties": _integers(0, 2),
    "normal": _normal,
    "special": _special,
    "huge": _huge,
    "masked": _masked,
}
"""Names of what tensors are filled with."""

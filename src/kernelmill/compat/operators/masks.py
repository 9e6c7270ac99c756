"""Masks of attention: the modes of `sparse_mode`, and lengths of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelmill.ops.library import require

INFINITE = 2147483647
"""Value of pre_tokens and next_tokens without a bound."""

_DEFAULT, _ALL, _LEFT_UP, _RIGHT_DOWN, _BAND, _PREFIX, _SHORT_PREFIX = range(7)
_READ = (_DEFAULT, _ALL, _PREFIX)
"""Modes whose mask is read; those of the others are compressed, and imply it."""

Length = int | Tensor
"""A number of tokens; a tensor of no dims where it is not known before a call."""


@dataclass
class AttentionMask:
    """Mask arguments of an operator. `mask` is true where a key is hidden. `prefix` has a number of
    first keys for each sequence that each query sees, for modes 5 and 6."""

    name: str
    mask: Tensor | None = None
    mode: int = _DEFAULT
    before: int = INFINITE
    after: int = INFINITE
    prefix: Sequence[int] | None = None

    def __post_init__(self) -> None:
        most = _BAND if self.prefix is None else _SHORT_PREFIX
        fits = _DEFAULT <= self.mode <= most
        require(fits, f"{self.name}: sparse_mode {self.mode} is none of 0 to {most}")

    def keep(
        self, rows: int, columns: int, like: Tensor,
        lengths: Sequence[tuple[Length, Length]] | None,
    ) -> Tensor | None:  # fmt: skip
        """Return the keys that a query sees, a mask for (batch, heads, rows, columns) by broadcast;
        None where each sees all. `lengths` are those of queries and keys of each sequence."""
        i = torch.arange(rows, device=like.device).unsqueeze(1)
        j = torch.arange(columns, device=like.device).unsqueeze(0)
        each = [self._band(i, j, rows, columns)]
        if lengths is not None:
            each = [self._within(i, j, sizes) for sizes in lengths]
        elif each[0] is not None and self.mode == _SHORT_PREFIX:
            each = [each[0] | (j < count) for count in self.prefix or ()]
        found = None
        if each[0] is not None:
            found = torch.stack([one for one in each if one is not None]).unsqueeze(1)
        if self.mask is not None and self.mode in _READ:
            own = self._own(rows, columns)
            found = own if found is None else found & own
        return found

    def _own(self, rows: int, columns: int) -> Tensor:
        mask = self.mask
        assert mask is not None
        known = mask.dtype in (torch.bool, torch.int8, torch.uint8) and 2 <= mask.dim() <= 4
        known = known and mask.shape[-2] >= min(rows, mask.shape[-2])
        found = f"{mask.dtype} {tuple(mask.shape)}"
        require(known, f"{self.name}: atten_mask must be bool, int8 or uint8 with 2 to 4 dims, "
                f"not {found}")  # fmt: skip
        if mask.dim() == 2 and rows == 1 and mask.shape[0] != 1:  # (batch, columns)
            mask = mask[:, None, None]
        elif mask.dim() == 3:
            mask = mask.unsqueeze(1)
        fits = mask.shape[-1] >= columns and mask.shape[-2] >= rows
        require(fits, f"{self.name}: atten_mask {found} is less than ({rows}, {columns})")
        return mask[..., :rows, :columns] == 0

    def _within(self, i: Tensor, j: Tensor, sizes: tuple[Length, Length]) -> Tensor:
        inside = (i < sizes[0]) & (j < sizes[1])
        band = self._band(i, j, *sizes)
        return inside if band is None else inside & band

    def _band(self, i: Tensor, j: Tensor, rows: Length, columns: Length) -> Tensor | None:
        """Return the band that the mode leaves; its corner is the lower right one from mode 3."""
        if self.mask is None or self.mode in (_ALL, _PREFIX):
            return None
        corner = columns - rows if self.mode >= _RIGHT_DOWN else 0
        before, after = INFINITE, 0
        if self.mode in (_DEFAULT, _BAND):
            before, after = self.before, self.after
        found = None
        if after < INFINITE:
            found = j <= i + (corner + after)
        if before < INFINITE:
            lower = j >= i + (corner - before)
            found = lower if found is None else found & lower
        return found

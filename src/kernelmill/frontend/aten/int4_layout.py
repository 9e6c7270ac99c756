"""Layout of ATen's four-bit weights on the CPU (`_weight_int4pack_mm_for_cpu`).

The layout is not documented, and depends on which of its kernels ATen has chosen for the processor
(`torch.backends.cpu.get_cpu_capability()`): blocks of neighbouring columns, for each k their
numbers two to a byte. In a whole block the low four bits are those of its first half of columns, in
one that is not whole those of every other column. Which it is, is found out by packing known
numbers.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from kernelmill.core.dataclass import dataclass
from kernelmill.frontend.emitter import Emitter
from kernelmill.graph.ir import Value


@dataclass(frozen=True)
class Int4Layout:
    """Blocks of `block` columns. `halves`: in whole blocks the low bits are the first half."""

    block: int
    halves: bool

    def blocks(self, n: int) -> list[tuple[int, int, bool]]:
        """Return the number of blocks of each kind, their columns, and whether the low four bits
        are the first half of these."""
        whole, rest = divmod(n, self.block)
        found = [(whole, self.block, self.halves), (1, rest, False)]
        return [(count, size, halves) for count, size, halves in found if count and size]


LAYOUTS = (Int4Layout(64, True), Int4Layout(32, True), Int4Layout(32, False))
"""Layouts of ATen's kernels for vectors of 512 bits, of 256 bits, and for other processors."""

_COLUMNS, _DEPTH = 112, 32


@cache
def int4_layout() -> Int4Layout | None:
    """Return the layout of this process; None if it is none of the known ones."""
    numbers = torch.randint(
        0, 16, (_COLUMNS, _DEPTH), dtype=torch.int32, generator=torch.Generator().manual_seed(0)
    )
    try:
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
    except (AttributeError, RuntimeError):  # a torch without it, or for another processor
        return None
    fits = (layout for layout in LAYOUTS if torch.equal(_unpacked(packed, layout), numbers))
    return next(fits, None) if tuple(packed.shape) == (_COLUMNS, _DEPTH // 2) else None


def _unpacked(packed: Tensor, layout: Int4Layout) -> Tensor:
    """Return the numbers (n, k) int32 of a packed weight."""
    n, k = packed.shape[0], packed.shape[1] * 2
    parts: list[Tensor] = []
    flat, at = packed.reshape(-1), 0
    for count, size, halves in layout.blocks(n):
        bytes = flat[at : at + count * size * k // 2].reshape(count, k, size // 2)
        at += bytes.numel()
        nibbles = torch.stack((bytes & 15, bytes >> 4), dim=2 if halves else 3)
        columns = nibbles.reshape(count, k, size).permute(0, 2, 1)
        parts.append(columns.reshape(count * size, k))
    return torch.cat(parts).to(torch.int32)


def unpacked_int4(e: Emitter, packed: Value, n: int, k: int, layout: Int4Layout) -> Value:
    """Emit the unpacking in the graph: numbers (n, k) of u8."""
    flat, at, parts = e.reshape(packed, (n * k // 2,)), 0, list[Value]()
    for count, size, halves in layout.blocks(n):
        end = at + count * size * k // 2
        shape = (count, k, size // 2)
        bytes = e.reshape(e.slice(flat, 0, at, end), shape)
        at = end
        low = e.emit("bit_and", bytes, e.expand(e.constant(15, packed.dtype), shape))
        high = e.emit("shr", bytes, e.expand(e.constant(4, packed.dtype), shape))
        dim = 2 if halves else 3
        both = e.emit("concat", e.unsqueeze(low, dim), e.unsqueeze(high, dim), dim=dim)
        columns = e.permute(e.reshape(both, (count, k, size)), (0, 2, 1))
        parts.append(e.reshape(columns, (count * size, k)))
    return parts[0] if len(parts) == 1 else e.emit("concat", *parts, dim=0)

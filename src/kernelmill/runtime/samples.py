"""Pieces of a parameter's contents, compared at each call: they tell of writes that leave no trace.

A write through `param.data` or `param.numpy()` moves neither the address nor the version counter
that the parameter itself has. What changes a weight as a whole changes the pieces too. They are
spread so thin that comparing them takes about a hundredth of the time in which a call can read
the weight from memory.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from torch import Tensor

PIECE_BYTES = 64
"""A cache line."""

APART_BYTES = 256 * 1024
LEAST_PIECES = 4


@dataclass(frozen=True)
class Sample:
    """`count` pieces of `width` bytes, `pitch` bytes apart from the first element on."""

    count: int
    width: int
    pitch: int
    contents: bytes


def take_sample(tensor: Tensor) -> Sample:
    """The pieces as they are now; none of a tensor without elements."""
    if tensor.numel() == 0:
        return Sample(0, 0, 0, b"")
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    span = (reach + 1) * tensor.element_size()
    width = min(span, PIECE_BYTES)
    count = min(max(LEAST_PIECES, span // APART_BYTES), span // width)
    pitch = (span - width) // max(count - 1, 1) // PIECE_BYTES * PIECE_BYTES
    first = tensor.data_ptr()
    pieces = (ctypes.string_at(first + i * pitch, width) for i in range(count))
    return Sample(count, width, pitch, b"".join(pieces))

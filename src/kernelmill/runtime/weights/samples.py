"""Pieces of a parameter's contents, compared at each call where written pages are not reported.

What changes a weight as a whole changes the pieces too. They are spread so thin that comparing them
takes about a hundredth of the time in which a call can read the weight from memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from kernelmill.core.dataclass import dataclass
from kernelmill.runtime.memory.allocation import empty_strided

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


NOTHING = Sample(0, 0, 0, b"")


def memory_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a CPU tensor from its first element to its last, gaps included."""
    return memory_in(tensor.untyped_storage(), *span_of(tensor))


def memory_in(storage: torch.UntypedStorage, first: int, last: int) -> memoryview:
    """Return the bytes of a storage on the CPU from `first` to before `last`."""
    flat = empty_strided((0,), (1,), torch.uint8).set_(storage, first, (last - first,), (1,))
    contents: Any = flat.numpy()
    return memoryview(contents).cast("B")


def memory_behind(storage: torch.UntypedStorage) -> tuple[int, int]:
    """Return the first and end address of a storage."""
    first = storage.data_ptr()
    return first, first + storage.nbytes()


def span_of(tensor: Tensor) -> tuple[int, int]:
    """Return the byte range of a tensor's elements in its storage."""
    width = tensor.element_size()
    first = int(tensor.storage_offset()) * width
    if tensor.numel() == 0:
        return first, first
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (reach + 1) * width


def take_sample(tensor: Tensor) -> Sample:
    """Return the current pieces; none for an empty tensor."""
    if tensor.numel() == 0:
        return NOTHING
    start, end = span_of(tensor)
    span = end - start
    width = min(span, PIECE_BYTES)
    count = min(max(LEAST_PIECES, span // APART_BYTES), span // width)
    pitch = (span - width) // max(count - 1, 1) // PIECE_BYTES * PIECE_BYTES
    return Sample(count, width, pitch, pieces_at(tensor.data_ptr(), count, width, pitch))


def pieces_at(address: int, count: int, width: int, pitch: int) -> bytes:
    """Return the contents of the pieces from this address on."""
    last = pitch * (count - 1) + width
    memory = memoryview((ctypes.c_char * last).from_address(address)).cast("B")
    return b"".join([memory[at : at + width] for at in range(0, last, pitch or last)])

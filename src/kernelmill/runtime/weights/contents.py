"""Checks, at each call, that weights still have the contents that were packed.

Small contents are compared whole. Larger memory is watched page by page where the system permits
(write_watch.py). Elsewhere pieces are compared; or all of it, by a digest, if the user
wants that or the weight has no version counter.

Pieces of a parameter's contents, compared at each call where written pages are not reported.

What changes a weight as a whole changes the pieces too. They are spread so thin that comparing them
takes about a hundredth of the time in which a call can read the weight from memory.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from kernelmill.config.compiler_config import CheckWeights
from kernelmill.core.dataclass import dataclass
from kernelmill.runtime.executor import executor
from kernelmill.runtime.memory.allocation import empty_strided
from kernelmill.runtime.weights.page_scan import PAGE, SharedMappings
from kernelmill.runtime.weights.write_watch import Span, Watch, write_watch
from kernelmill.torch_internals.tensors import version_of

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


WATCHED_BYTES = 2 * PAGE
"""Size above which memory fills pages, and can be watched."""

WHOLE_BYTES = 16 << 10
"""Size up to which unwatched contents are compared whole."""


class Way(Enum):
    """Checks of a weight at each call. SHARED is for memory that other processes can write to, or
    other mappings of a file: such writes only pieces can detect."""

    UNREAD = "nothing: kernels read it where it is"
    WHOLE = "compared whole"
    PAGES = "watched"
    SHARED = "watched, and pieces compared"
    DIGEST = "compared whole, by a digest"
    PIECES = "pieces compared"


@dataclass(frozen=True)
class Contents:
    """The compared contents of a weight; equal if nobody wrote, as far as the way can detect."""

    sample: Sample = NOTHING
    writes: int = 0
    edges: tuple[bytes, bytes] = (b"", b"")
    digest: int = 0
    digest_bytes: int = 0


def memory_span(tensor: torch.Tensor) -> Span:
    """Return the first and end address of a tensor's elements."""
    first, last = span_of(tensor)
    return tensor.data_ptr(), tensor.data_ptr() + last - first


def way_for(
    tensor: torch.Tensor, check: CheckWeights, watch: Watch | None, mappings: SharedMappings
) -> Way:
    """Return how to check a tensor whose contents count; with "auto" by `watch`, if there is one.
    `mappings` are the current ones."""
    start, end = memory_span(tensor)
    if end - start <= (WHOLE_BYTES if watch is None else WATCHED_BYTES):
        return Way.WHOLE
    if check == "full":
        return Way.DIGEST
    if watch is not None:
        return Way.SHARED if _others_write(tensor, mappings) else Way.PAGES
    odd = check == "auto" and write_watch().allowed  # where it is not, no memory can be watched
    unseen = tensor.is_inference() or not version_of.works  # torch counts no writes to it
    return Way.DIGEST if odd or unseen else Way.PIECES


def _others_write(tensor: torch.Tensor, mappings: SharedMappings) -> bool:
    """Return whether other processes, or this one through another mapping, can write to a tensor's
    memory. Torch knows what it has shared itself, but no array over a file or a SharedMemory."""
    if tensor.untyped_storage().is_shared():
        return True
    # The mappings take milliseconds to read, and hardly any weight is of a file.
    address = tensor.data_ptr()
    return write_watch().is_of_file(address) and mappings.have(address)


def read_contents(tensor: torch.Tensor, way: Way, watch: Watch | None) -> Contents | None:
    """Return the current contents; None if the memory cannot be watched any more."""
    start, end = memory_span(tensor)
    size = end - start
    if way is Way.UNREAD or not size:
        return Contents()
    if way is Way.WHOLE:
        return Contents(Sample(1, size, 0, ctypes.string_at(start, size)))
    if way is Way.DIGEST:
        return Contents(digest=digest_of(start, size), digest_bytes=size)
    if way is Way.PIECES:
        return Contents(take_sample(tensor))
    if watch is None or watch.writes is None or watch.span != (start, end):
        return None
    sample = take_sample(tensor) if way is Way.SHARED else NOTHING
    (a, b), (c, d) = watch.edges
    return Contents(sample, watch.writes, (ctypes.string_at(a, b - a), ctypes.string_at(c, d - c)))


def copy_holds(contents: Contents, address: int, size: int) -> bool:
    """Return whether a copy of the memory, `size` bytes, has these contents."""
    sample, (head, tail) = contents.sample, contents.edges
    whole = contents.digest_bytes
    return (
        (
            not sample.count
            or pieces_at(address, sample.count, sample.width, sample.pitch) == sample.contents
        )
        and ctypes.string_at(address, len(head)) == head
        and ctypes.string_at(address + size - len(tail), len(tail)) == tail
        and (not whole or digest_of(address, whole) == contents.digest)
    )


def digest_of(address: int, size: int) -> int:
    """Return a 64-bit digest of memory."""
    return executor().digest[True](address, size)

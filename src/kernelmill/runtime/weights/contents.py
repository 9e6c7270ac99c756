"""Checks, at each call, that weights still have the contents that were packed.

Small contents are compared whole. Larger memory is watched page by page where the system permits
(write_watch.py). Elsewhere pieces are compared (samples.py); or all of it, by a digest, if the user
wants that or the weight has no version counter.
"""

from __future__ import annotations

import ctypes
from enum import Enum

import torch

from kernelmill.config.compiler_config import CheckWeights
from kernelmill.core.dataclass import dataclass
from kernelmill.runtime.executor import executor
from kernelmill.runtime.weights.page_scan import PAGE, SharedMappings
from kernelmill.runtime.weights.samples import NOTHING, Sample, pieces_at, span_of, take_sample
from kernelmill.runtime.weights.write_watch import Span, Watch, write_watch
from kernelmill.torch_internals.tensors import version_of

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

"""Allocation of tensors without torch's dispatcher.

A kernel that reads megabytes of weights or images crosses a page of 4 KiB every 64 cache lines. Its
translation takes time, the more so in a virtual machine, and some prefetchers stop at its end.
Linux gives large pages (2 MiB on x86-64) on request (`madvise`) before memory is first written, and
can move used memory to them.

The first write to a large page can be slow: a free one must be found, which on a virtual machine
the host seldom has. So packed weights that a call waits for are written on small pages, and moved
to large ones in the background (runtime/background.py).

Memory of large results is reused once the caller has dropped the result. Fresh memory costs a page
fault every 4 KiB, which takes longer than a kernel that only reads and writes. The reference count
of a piece's storage is the test for use: every tensor, view, array or saved variable over it holds
one.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from kernelmill.core.after_fork import ReentryLock
from kernelmill.core.dataclass import dataclass
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.runtime import background
from kernelmill.torch_internals import tensors
from kernelmill.torch_internals.tensors import Alias, Allocate, direct_allocation, storage_users

_direct = direct_allocation.get()


def _by_dispatcher(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


empty_strided: Allocate = _direct or _by_dispatcher
"""A new CPU tensor of this shape and strides (in elements), 64-byte aligned, not filled."""

is_direct = _direct is not None
"""True if no mode or default device of the user's affects `empty_strided`."""

alias: Alias | None = tensors.alias.get()
"""Returns a tensor over another one's memory, at an offset in elements, unseen by tracing; None if
this torch has no such function."""


@lru_cache(maxsize=4096)
def elements_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first address to the last, 0 for empty tensors."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def lie_alike(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether elements of this shape have the same offsets with both strides."""
    return 0 in shape or all(
        size == 1 or stride == other
        for size, stride, other in zip(shape, strides, others, strict=True)
    )


def lie_in_one_order(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether the dims of this shape have the same order in memory with both strides, and
    the same of them are expanded. Torch's results for two such tensors have the same strides, with
    gaps between elements or without."""
    dims = [n for n, size in enumerate(shape) if size != 1]
    kept = [strides[n] for n in dims], [others[n] for n in dims]
    one, other = ([sorted({0, *each}).index(stride) for stride in each] for each in kept)
    return 0 in shape or one == other


_USUAL_BYTES = 2 << 20
"""The size of x86-64, and of AArch64 with small pages of 4 KiB."""


def page_bytes(path: Path) -> int:
    """Return the size of a large page from this file of the system, a power of two; else the usual
    one. AArch64 has 32 MiB beside small pages of 16 KiB, and 512 MiB beside 64 KiB."""
    try:
        size = int(path.read_text())
    except (OSError, ValueError):
        return _USUAL_BYTES
    return size if size.bit_count() == 1 and size >= mmap.PAGESIZE else _USUAL_BYTES


PAGE_BYTES = page_bytes(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"))
"""Bytes of a large page."""

_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_COLLAPSE = 25
"""MADV_COLLAPSE, of Linux 6.1: move written memory to large pages (madvise(2))."""

_COLLAPSED_AT_ONCE = 8
"""Pages moved at a time; others can map memory in between."""

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, strides (in elements) and dtype of a tensor."""


def ask(tensor: torch.Tensor) -> None:
    """Request large pages under a tensor whose elements are contiguous and not yet written."""
    first, last = _pages(tensor)
    if first < last and _ADVICE is not None:
        _madvise()(first, last - first, _ADVICE)  # where it is refused nothing is lost


def move(tensor: torch.Tensor) -> Iterator[None]:
    """Move a contiguous tensor to large pages, a few at each step, even while it is in use."""
    first, last = _pages(tensor)
    step = _COLLAPSED_AT_ONCE * PAGE_BYTES
    if _ADVICE is None:
        return
    for place in range(first, last, step):
        size = min(step, last - place)
        if _madvise()(place, size, _COLLAPSE):  # an older system, or it has no large page left
            _madvise()(place, size, _ADVICE)
        yield


def _pages(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first and end address of the large pages that a tensor fills."""
    first = -(-tensor.data_ptr() // PAGE_BYTES) * PAGE_BYTES
    last = (tensor.data_ptr() + tensor.nbytes) // PAGE_BYTES * PAGE_BYTES
    return first, max(first, last)


def room(count: int, dtype: torch.dtype, asking: bool = True) -> tuple[torch.Tensor, int]:
    """Return an unfilled tensor with room for `count` elements, on large pages if it fills one, and
    the index of the first element, which is 64-byte aligned. Without `asking`, it has small pages,
    aligned as large ones."""
    if count * dtype.itemsize < PAGE_BYTES or _ADVICE is None:
        return empty_strided((count,), (1,), dtype), 0
    page = PAGE_BYTES // dtype.itemsize
    tensor = empty_strided(((count // page + 2) * page,), (1,), dtype)
    if asking:
        ask(tensor)
    return tensor, -tensor.data_ptr() % PAGE_BYTES // dtype.itemsize


class HugePageArena:
    """Memory for tensors of these layouts, those of a dtype in a row, from the first tensor to the
    death of the last. If a call is `waiting` for them they are on small pages, and `close` has them
    moved to large ones once all are filled."""

    def __init__(self, layouts: Iterable[Layout], waiting: bool = True) -> None:
        self._waiting = waiting
        self._elements: Counter[torch.dtype] = Counter()
        for layout in layouts:
            self._elements[layout[2]] += aligned_bytes(layout) // layout[2].itemsize
        self._free: dict[torch.dtype, tuple[torch.Tensor, int]] = {}

    def tensor(self, layout: Layout) -> torch.Tensor:
        """Return the next tensor, 64-byte aligned and not filled. At most those announced."""
        shape, strides, dtype = layout
        if alias is None:
            return empty_strided(shape, strides, dtype)
        found = self._free.get(dtype)
        base, place = found or room(self._elements[dtype], dtype, asking=not self._waiting)
        self._free[dtype] = base, place + aligned_bytes(layout) // dtype.itemsize
        return alias(base, shape, strides, place)

    def close(self) -> None:
        """Mark all tensors as filled, and have them moved to large pages. Returns at once."""
        for base, _ in self._free.values():
            if base.nbytes >= PAGE_BYTES and self._waiting:
                background.submit(partial(move, base))
        self._free.clear()


def aligned_bytes(layout: Layout) -> int:
    """Return the bytes of a tensor in whole cache lines."""
    shape, strides, dtype = layout
    return -(-elements_of(shape, strides) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


@cache
def _madvise() -> Any:
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


LARGE_BYTES = 1 << 20
"""Least size of results for which free memory is searched."""

KEPT_BYTES = 512 << 20
"""Most bytes that are kept, in use or not; the oldest piece is dropped first."""


@dataclass
class _Piece:
    """Memory of one result. `storage` is the one Python object for the base's; `alone` is its state
    while nobody else refers to it."""

    base: torch.Tensor
    storage: torch.UntypedStorage
    bytes: int
    users: Callable[[torch.UntypedStorage], int]
    alone: tuple[int, ...] = ()

    def state(self) -> tuple[int, ...]:
        """Return references to the storage from tensors and from Python, its address and its size:
        a storage that moved or was resized is another piece."""
        storage = self.storage
        users, names = self.users(storage), sys.getrefcount(storage)
        return users, names, storage.data_ptr(), storage.nbytes()


class ResultMemory:
    """The result memory of one process. Any thread may request tensors."""

    def __init__(self, alias: Alias, limit: int = KEPT_BYTES) -> None:
        self._alias = alias
        self._users = storage_users.require()
        self._limit = limit
        self._pieces: list[_Piece] = []
        self._busy = ReentryLock()

    @property
    def kept_bytes(self) -> int:
        """Bytes of all pieces, in use or not."""
        return sum(piece.bytes for piece in self._pieces)

    def tensor(
        self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, elements: int
    ) -> torch.Tensor:
        """Return an unfilled tensor over `elements` elements that nobody else refers to."""
        bytes = elements * dtype.itemsize
        if bytes > self._limit:
            return empty_strided(shape, strides, dtype)
        with self._busy.enter() as first:
            if not first:  # a signal handler, in the midst of looking for a piece
                return empty_strided(shape, strides, dtype)
            piece = self._find(bytes, dtype) or self._new(elements, dtype, bytes)
            self._pieces.append(piece)
            return self._alias(piece.base, shape, strides, 0)

    def _find(self, bytes: int, dtype: torch.dtype) -> _Piece | None:
        """Return a free piece of this size, removed from the list."""
        for number, piece in enumerate(self._pieces):
            if piece.bytes == bytes and piece.base.dtype == dtype and piece.state() == piece.alone:
                del self._pieces[number]
                # A weight was in it: only the death of its storage reveals that it is gone, else
                # another one in the same place could be taken for it.
                return None if weakref.getweakrefcount(piece.storage) else piece
        return None

    def _new(self, elements: int, dtype: torch.dtype, bytes: int) -> _Piece:
        while self._pieces and self.kept_bytes + bytes > self._limit:
            self._pieces.pop(0)
        base = empty_strided((elements,), (1,), dtype)
        ask(base)
        piece = _Piece(base, base.untyped_storage(), bytes, self._users)
        piece.alone = piece.state()
        return piece


memory = ResultMemory(alias) if storage_users.works and alias is not None else None
"""The memory of results; None if this torch cannot alias memory unseen by tracing."""


def result_tensor(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor as `empty_strided` does, in memory of an earlier result if some is free."""
    elements = elements_of(tuple(shape), tuple(strides))
    if memory is None or elements * dtype.itemsize < LARGE_BYTES:
        return empty_strided(shape, strides, dtype)
    return memory.tensor(shape, strides, dtype, elements)

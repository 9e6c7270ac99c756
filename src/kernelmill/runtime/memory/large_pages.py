"""Memory on large pages, on systems that give them on request.

A kernel that reads megabytes of weights or images crosses a page of 4 KiB every 64 cache lines. Its
translation takes time, the more so in a virtual machine, and some prefetchers stop at its end.
Linux gives large pages (2 MiB on x86-64) on request (`madvise`) before memory is first written, and
can move used memory to them.

The first write to a large page can be slow: a free one must be found, which on a virtual machine
the host seldom has. So packed weights that a call waits for are written on small pages, and moved
to large ones in the background (runtime/background.py).
"""

from __future__ import annotations

import ctypes
import mmap
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from kernelmill.plan.arena import ALIGNMENT
from kernelmill.runtime import background
from kernelmill.runtime.memory.allocation import alias, elements_of, empty_strided

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
            self._elements[layout[2]] += _aligned_elements(layout)
        self._free: dict[torch.dtype, tuple[torch.Tensor, int]] = {}

    def tensor(self, layout: Layout) -> torch.Tensor:
        """Return the next tensor, 64-byte aligned and not filled. At most those announced."""
        shape, strides, dtype = layout
        if alias is None:
            return empty_strided(shape, strides, dtype)
        base, place = self._free.get(dtype) or self._room(dtype)
        self._free[dtype] = base, place + _aligned_elements(layout)
        return alias(base, shape, strides, place)

    def _room(self, dtype: torch.dtype) -> tuple[torch.Tensor, int]:
        return room(self._elements[dtype], dtype, asking=not self._waiting)

    def close(self) -> None:
        """Mark all tensors as filled, and have them moved to large pages. Returns at once."""
        for base, _ in self._free.values():
            if base.nbytes >= PAGE_BYTES and self._waiting:
                background.submit(partial(move, base))
        self._free.clear()


def _aligned_elements(layout: Layout) -> int:
    shape, strides, dtype = layout
    line = ALIGNMENT // dtype.itemsize
    return -(-elements_of(shape, strides) // line) * line


@cache
def _madvise() -> Any:
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function

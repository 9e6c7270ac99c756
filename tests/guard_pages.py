"""Kernels between pages that nobody may touch: one that reads or writes in front of a buffer or
behind it ends the process, and Python says in which test.

`pytest --guard-pages` has every kernel run twice, with buffers that end where a page does, and with
buffers that begin where one does. Buffers that share memory go on sharing it.

`GuardedMemory` does so with the memory of whole programs: results, arenas, scratch and packed
weights, and arguments that were moved there.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernelmill.plan.arena import ALIGNMENT
from kernelmill.runtime.memory import allocation, dims
from kernelmill.runtime.memory import frames as memory
from kernelmill.runtime.memory.allocation import elements_of

Memory = np.ndarray | Tensor

_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_UNSET = 0xFF
"""Byte that fills scratch memory before a call."""


@dataclass
class _State:
    on: bool = False


_state = _State()


def begin() -> None:
    """Have kernels run so from now on."""
    _state.on = True


def is_on() -> bool:
    """Whether kernels run so."""
    return _state.on


@dataclass
class _Block:
    """Memory of one buffer, or of several that overlap: its addresses, and its alignment."""

    begin: int
    end: int
    alignment: int


def call(
    function: Callable[..., None],
    memory: Sequence[Memory],
    dims: Sequence[int],
    ranges: Sequence[tuple[int, int]],
    scratch: int,
) -> None:
    """Run these ranges of a kernel's tasks. AssertionError when both ways differ."""
    blocks = _blocks(memory)
    numbers = (ctypes.c_int64 * len(dims))(*dims)
    found: list[list[bytes]] = []
    for at_end in (True, False):
        with _placed([*(b.end - b.begin for b in blocks), scratch], at_end, blocks) as places:
            for block, place in zip(blocks, places, strict=False):
                ctypes.memmove(place, block.begin, block.end - block.begin)
            ctypes.memset(places[-1], _UNSET, scratch)
            moved = [_moved(_address(each), blocks, places) for each in memory]
            pointers = (ctypes.c_void_p * len(moved))(*moved)
            for first, last in ranges:
                function(pointers, numbers, first, last, places[-1])
            sizes = [block.end - block.begin for block in blocks]
            found.append(list(map(ctypes.string_at, places, sizes)))
    assert found[0] == found[1], "results depend on where in memory buffers are"
    for block, contents in zip(blocks, found[0], strict=True):
        ctypes.memmove(block.begin, contents, len(contents))


def _blocks(memory: Sequence[Memory]) -> list[_Block]:
    """What the buffers lie in; those with gaps between their elements are left where they are."""
    found: list[_Block] = []
    whole = [each for each in memory if _is_contiguous(each) and each.nbytes]
    for each in sorted(whole, key=_address):
        begin, end = _address(each), _address(each) + each.nbytes
        if found and begin < found[-1].end:
            found[-1].end = max(found[-1].end, end)
            found[-1].alignment = max(found[-1].alignment, each.itemsize)
        else:
            found.append(_Block(begin, end, each.itemsize))
    return found


def _moved(address: int, blocks: Sequence[_Block], places: Sequence[int]) -> int:
    for block, place in zip(blocks, places, strict=False):
        if block.begin <= address < block.end:
            return place + address - block.begin
    return address


@contextmanager
def _placed(
    sizes: Sequence[int], at_end: bool, blocks: Sequence[_Block]
) -> Generator[list[int]]:  # fmt: skip
    """Room for each of these sizes between two pages without access; the last, scratch, begins at
    a line of the caches."""
    page, places, rooms = mmap.PAGESIZE, list[int](), list[tuple[int, int]]()
    for number, size in enumerate(sizes):
        alignment = blocks[number].alignment if number < len(blocks) else 64
        pages = -(-max(size, 1) // page) * page
        room = _libc().mmap(None, pages + 2 * page, 0, _ANONYMOUS, -1, 0)
        rooms.append((room, pages + 2 * page))
        _libc().mprotect(room + page, pages, mmap.PROT_READ | mmap.PROT_WRITE)
        places.append(room + page + ((pages - size) // alignment * alignment if at_end else 0))
    try:
        yield places
    finally:
        for room, size in rooms:
            _libc().munmap(room, size)


def _address(memory: Memory) -> int:
    return memory.data_ptr() if isinstance(memory, Tensor) else memory.ctypes.data


def _is_contiguous(memory: Memory) -> bool:
    if isinstance(memory, Tensor):
        return memory.is_contiguous()
    return bool(memory.flags.c_contiguous)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = (pointer, size, number, number, number, ctypes.c_int64)
    libc.munmap.argtypes = (pointer, size)
    libc.mprotect.argtypes = (pointer, size, number)
    return libc


class GuardedMemory:
    """While it is entered, programs get memory between pages without access: at their end, or at
    their beginning. What a program needs is aligned, and so may have some bytes before a page:
    `check` finds what was written to them. Each set of sizes has an arena and scratch of its own.
    """

    def __init__(self, at_end: bool) -> None:
        self._at_end = at_end
        self._patch = pytest.MonkeyPatch()
        self._spare: list[tuple[Tensor, Tensor]] = []

    def __enter__(self) -> GuardedMemory:
        for module in (allocation, dims):
            self._patch.setattr(module, "empty_strided", self.empty_strided)
        self._patch.setattr(dims, "result_tensor", self.empty_strided)
        self._patch.setattr(allocation, "PAGE_BYTES", 1 << 60)  # no room beyond what is needed
        adopt = memory.Frame.adopt

        def anew(frame: memory.Frame, needed: dims.Sizes) -> None:
            frame.arena_bytes = frame._header.scratch_bytes = 0
            adopt(frame, needed)

        self._patch.setattr(memory.Frame, "adopt", anew)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
        self._spare.clear()

    def empty_strided(
        self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
    ) -> Tensor:
        """What the runtime allocates."""
        return self._tensor(shape, strides, dtype, ALIGNMENT)

    def moved(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The same arguments, those that share memory still do so, each piece of memory ending or
        beginning at a page."""
        known: dict[int, Tensor] = {}
        found: list[Tensor] = []
        for each in tensors:
            storage = each.untyped_storage()
            flat = torch.empty(0, dtype=each.dtype).set_(storage)
            if storage.data_ptr() not in known:
                place = self._tensor(flat.shape, (1,), each.dtype, each.element_size())
                known[storage.data_ptr()] = place.copy_(flat)
            memory, copy = (
                known[storage.data_ptr()].untyped_storage(),
                torch.empty(0).to(each.dtype),
            )
            copy.set_(memory, each.storage_offset(), each.shape, each.stride())
            found.append(copy.requires_grad_(each.requires_grad))
        return found

    def check(self) -> None:
        """AssertionError where something was written beside what was allocated."""
        for before, behind in self._spare:
            assert (before == _CANARY).all(), "written in front of what was allocated"
            assert (behind == _CANARY).all(), "written behind what was allocated"

    def _tensor(
        self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, alignment: int
    ) -> Tensor:
        size = elements_of(tuple(shape), tuple(strides)) * dtype.itemsize
        page = mmap.PAGESIZE
        pages = -(-max(size, 1) // page) * page
        room = mmap.mmap(-1, pages + 2 * page, _ANONYMOUS)
        whole = torch.frombuffer(room, dtype=torch.uint8)
        for guard in (0, page + pages):
            _libc().mprotect(whole.data_ptr() + guard, page, 0)
        first = page + ((pages - size) // alignment * alignment if self._at_end else 0)
        used = whole[page : page + pages].fill_(_CANARY)
        self._spare.append((used[: first - page], used[first - page + size :]))
        made = torch.empty(0, dtype=dtype)
        if size:
            # Storage without the pages around it: who looks at all of it may do so.
            made = torch.frombuffer(room, dtype=torch.uint8, count=size, offset=first)
        storage = made.untyped_storage()
        return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape), tuple(strides))


_CANARY = 0xA5
"""Byte that guarded memory is filled with."""

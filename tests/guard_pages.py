"""Kernels between pages that nobody may touch: one that reads or writes in front of a buffer or
behind it ends the process, and Python says in which test.

`pytest --guard-pages` has every kernel run twice, with buffers that end where a page does, and with
buffers that begin where one does. Buffers that share memory go on sharing it.
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
from torch import Tensor

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

"""Memory for calls: frames, arenas and scratch."""

from __future__ import annotations

import ctypes
import os

import torch

from kernelmill.runtime.allocation import empty_strided
from kernelmill.runtime.large_pages import room
from kernelmill.runtime.layout import FrameHeader, word
from kernelmill.runtime.sizes import Sizes

_CACHE_LINE = 64

_HEADER_WORDS = ctypes.sizeof(FrameHeader) // ctypes.sizeof(word)


def empty_bytes(count: int) -> torch.Tensor:
    """`count` bytes of memory, 64-byte aligned, not filled."""
    return empty_strided((count,), (1,), torch.uint8)


class FramePool:
    """The frames of one program, or of several that share their memory because they never run for
    one caller at a time. `reserve` the slots of all of them before the first frame is made."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.free: list[Frame] = []
        self._slots = 0
        self._threaded = True

    def reserve(self, slots: int, threaded: bool) -> None:
        """Let coming frames have room for so many buffers."""
        self._slots = max(self._slots, slots)
        self._threaded = threaded

    def take(self) -> Frame:
        """A frame that nobody else uses until it is put into `free` again."""
        try:
            return self.free.pop()
        except IndexError:
            return self.new()

    def new(self) -> Frame:
        """One more frame."""
        frame = Frame(self._slots, self._threaded)
        self.frames.append(frame)
        return frame


class Frame:
    """What one call at a time works in: addresses of buffers, status word, arena and scratch."""

    __slots__ = (
        "_arena",
        "_arena_bytes",
        "_header",
        "_lines",
        "_scratch",
        "_words",
        "address",
        "sizes",
    )

    def __init__(self, slots: int, threaded: bool) -> None:
        self._words: ctypes.Array[ctypes.c_int64] = (word * (_HEADER_WORDS + slots))()
        self.address = ctypes.addressof(self._words)
        self.sizes: Sizes | None = None
        self._arena = self._scratch = empty_bytes(0)
        self._arena_bytes = 0
        self._header = FrameHeader.from_buffer(self._words)
        self._header.threads = _most_threads() if threaded else 1
        self._lines = empty_bytes(_CACHE_LINE * self._header.threads)
        self._header.lines = self._lines.data_ptr()
        self._header.status_address = self.address + FrameHeader.status.offset

    @property
    def calls(self) -> int:
        """How many calls this frame has served."""
        return self._header.calls

    @property
    def arena_bytes(self) -> int:
        return self._arena_bytes

    def adopt(self, sizes: Sizes) -> None:
        """Get ready for calls of these sizes: memory only ever grows."""
        header = self._header
        header.table = sizes.table
        if sizes.arena_bytes > self._arena_bytes:
            self._arena, start = room(sizes.arena_bytes, torch.uint8)
            self._arena_bytes = sizes.arena_bytes
            header.arena = self._arena.data_ptr() + start
        if sizes.scratch_bytes > header.scratch_bytes:
            self._scratch, start = room(sizes.scratch_bytes * header.threads, torch.uint8)
            header.scratch = self._scratch.data_ptr() + start
            header.scratch_bytes = sizes.scratch_bytes
        header.values = ctypes.addressof(sizes.values)
        self.sizes = sizes

    def set_address(self, buffer: int, address: int) -> None:
        """Say where a buffer is, for launches that do not get it as an argument."""
        self._words[_HEADER_WORDS + buffer] = address


def _most_threads() -> int:
    return max(torch.get_num_threads(), os.cpu_count() or 1)

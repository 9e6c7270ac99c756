"""Memory of calls: frames, arenas and scratch."""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections import deque
from functools import cache

import torch

from kernelmill.core.after_fork import ReentryLock, after_fork
from kernelmill.core.log import get_logger
from kernelmill.core.target.cpus import quota
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.runtime.layout import FrameHeader, word
from kernelmill.runtime.memory.allocation import empty_strided, room
from kernelmill.runtime.memory.dims import Sizes

MOST_IDLE = max(4, os.cpu_count() or 1)
"""Most idle frames that are kept: more concurrent calls than processors gain nothing, and after a
burst of calls their memory is freed."""

CALLERS = word(0)
"""Number of calls in the process that run launches worth several threads, which they share."""

_log = get_logger("runtime")
_HEADER_WORDS = ctypes.sizeof(FrameHeader) // ctypes.sizeof(word)


@after_fork
def _forget_callers() -> None:
    CALLERS.value = 0  # they are other threads


def empty_bytes(count: int) -> torch.Tensor:
    """Return `count` bytes of memory, 64-byte aligned, not filled."""
    return empty_strided((count,), (1,), torch.uint8)


class FramePool:
    """The frames of one program, or of several that share memory because no caller runs two at a
    time. `reserve` the slots of all of them before the first frame is made."""

    def __init__(self) -> None:
        # A full one lets go of the frame that has been idle for longest.
        self.free: deque[Frame] = deque(maxlen=MOST_IDLE)
        self._frames: set[weakref.ref[Frame]] = set()
        self._busy = ReentryLock()
        self._gone_calls: deque[int] = deque()
        self._past_calls = 0
        self._slots = 0
        self._threaded = True

    @property
    def frames(self) -> list[Frame]:
        """All frames, idle or in use."""
        # Taken at once: a signal handler's call can add one at any time.
        return [frame for known in tuple(self._frames) if (frame := known()) is not None]

    @property
    def calls(self) -> int:
        """Number of calls that the frames have served, freed ones included."""
        with self._busy.enter() as first:
            frames = self.frames
            # A frame can go at any time, in any thread: it only leaves its number here.
            while first and self._gone_calls:
                self._past_calls += self._gone_calls.popleft()
            gone = sum(tuple(self._gone_calls))
            return self._past_calls + gone + sum(frame.calls for frame in frames)

    def reserve(self, slots: int, threaded: bool) -> None:
        """Give later frames room for at least `slots` buffers."""
        self._slots = max(self._slots, slots)
        self._threaded = threaded

    def take(self) -> Frame:
        """Return a frame that nobody else uses until it is put into `free` again."""
        try:
            return self.free.pop()
        except IndexError:
            return self.new()

    def new(self) -> Frame:
        """Return a new frame."""
        frame = Frame(self._slots, self._threaded, self._gone_calls)
        _ = self.calls  # adds up those that are gone
        self._frames.add(weakref.ref(frame, self._frames.discard))
        return frame


class Frame:
    """The working memory of a call: buffer addresses, status word, arena and scratch."""

    __slots__ = (
        "__weakref__",
        "_arena",
        "_gone_calls",
        "_header",
        "_lines",
        "_scratch",
        "_words",
        "address",
        "arena_bytes",
        "sizes",
    )

    def __init__(self, slots: int, threaded: bool, gone_calls: deque[int] | None = None) -> None:
        self._gone_calls = gone_calls
        self._words: ctypes.Array[ctypes.c_int64] = (word * (_HEADER_WORDS + slots))()
        self.address = ctypes.addressof(self._words)
        self.sizes: Sizes | None = None
        self._arena: object = empty_bytes(0)
        self._scratch: object = self._arena
        self.arena_bytes = 0
        self._header = FrameHeader.from_buffer(self._words)
        self._header.threads = _most_threads() if threaded else 1
        self._lines = empty_bytes(ALIGNMENT * self._header.threads)
        self._header.lines = self._lines.data_ptr()
        self._header.callers = ctypes.addressof(CALLERS)
        self._header.status_address = self.address + FrameHeader.status.offset

    def __del__(self) -> None:
        if self._gone_calls is not None:
            self._gone_calls.append(self.calls)

    @property
    def calls(self) -> int:
        """Number of calls that this frame has served."""
        return self._header.calls

    @property
    def held_up(self) -> int:
        """Number of times a call continued with one thread less, because one did not run."""
        return self._header.held_up

    def adopt(self, sizes: Sizes) -> None:
        """Prepare for calls of these sizes: memory only grows. Unchanged if allocation fails."""
        header = self._header
        # Ctrl-C can come anywhere: old memory stays until the header has the address of new one.
        if sizes.arena_bytes > self.arena_bytes:
            memory, start = room(sizes.arena_bytes, torch.uint8)
            address = memory.data_ptr() + start
            self._arena = self._arena, memory
            header.arena = address
            self._arena, self.arena_bytes = memory, sizes.arena_bytes
        if sizes.scratch_bytes > header.scratch_bytes:
            memory, start = room(sizes.scratch_bytes * header.threads, torch.uint8)
            address = memory.data_ptr() + start
            self._scratch = self._scratch, memory
            header.scratch = address
            self._scratch, header.scratch_bytes = memory, sizes.scratch_bytes
        values = ctypes.addressof(sizes.values)
        self.sizes = None  # those of neither, should this be as far as it gets
        header.table, header.values = sizes.table, values
        self.sizes = sizes

    def set_address(self, buffer: int, address: int) -> None:
        """Set the address of a buffer, for launches that do not get it as an argument."""
        self._words[_HEADER_WORDS + buffer] = address


def _most_threads() -> int:
    most = max(torch.get_num_threads(), os.cpu_count() or 1)
    granted = _granted_threads()
    return most if granted is None else min(most, granted)


@cache
def _granted_threads() -> int | None:
    """Return the number of processors that the control group's CPU quota allows, None without a
    limit: once the quota of a period is used up, all threads stop until the next. Warns if torch
    uses more."""
    found = quota()
    if found is None:
        return None
    granted, threads = max(1, math.ceil(found)), torch.get_num_threads()
    if threads > granted:
        _log.warning(
            "the control group grants %g processors, and torch uses %d threads: kernels run on %d; "
            "OMP_NUM_THREADS=%d has torch's own operators do so too",
            found, threads, granted, granted,
        )  # fmt: skip
    return granted

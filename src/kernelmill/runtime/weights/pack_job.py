"""Packing in the background of weights that calls have streamed so far (streaming.py).

Meanwhile the user may write to the parameters, move or free them. So the sources of a component are
first copied by the system, which returns an error for unmapped memory; then the parameter is
compared with its state at binding. A changed one is left to the next call.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from typing import Any, TypeVar

import torch

from kernelmill.core.after_fork import after_fork
from kernelmill.core.dataclass import dataclass
from kernelmill.runtime import background
from kernelmill.runtime.memory.large_pages import HugePageArena, Layout, room
from kernelmill.runtime.weights.bound_parameters import BoundParameter
from kernelmill.runtime.weights.contents import copy_holds, span_of
from kernelmill.runtime.weights.on_disk import page_out
from kernelmill.runtime.weights.streaming import Stream
from kernelmill.runtime.weights.write_watch import write_watch

Made = TypeVar("Made")

_LOOK_SECONDS = 0.001


class _Maker:
    """A thread that makes something. It is forgotten with the frame that holds it, so that Ctrl-C
    is safe anywhere."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.done = False


_makers: dict[Hashable, weakref.ref[_Maker]] = {}
after_fork(_makers.clear)


def once(key: Hashable, find: Callable[[], Made | None], make: Callable[[], Made]) -> Made:
    """Return the result of `find`, else of `make`, which `find` has to return from then on. While
    another thread makes it, this one waits."""
    mine = _Maker()
    while (found := find()) is None:
        other = _makers.setdefault(key, weakref.ref(mine))()
        if other is mine:
            try:
                return make()
            finally:
                mine.done = True
                _makers.pop(key, None)
        if other is None or other.done:
            _makers.pop(key, None)
        elif other.thread == mine.thread:  # a handler has come into the midst of it
            return make()
        else:
            _look_again()
    return found


def _look_again() -> None:
    time.sleep(_LOOK_SECONDS)


Prepare = Callable[[Mapping[int, int], Sequence[int]], None]
"""Runs prepare launches with buffers at these addresses."""

_APART = 4096


@dataclass(eq=False)
class PackedPart:
    """The packed buffers of one component, in the order of `Component.buffers`."""

    tensors: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Source:
    """A parameter that a component is packed from: its buffer number, and the bytes from the first
    element that kernels read to the last."""

    number: int
    parameter: BoundParameter
    bytes: int

    @classmethod
    def of(cls, number: int, parameter: BoundParameter, tensor: torch.Tensor) -> Source:
        """Return the source for a parameter; kernels read `tensor`."""
        first, last = span_of(tensor)
        return cls(number, parameter, last - first)

    @property
    def room(self) -> int:
        """Bytes reserved for a copy."""
        return -(-self.bytes // _APART) * _APART


@dataclass(frozen=True)
class Task:
    """A component to pack: its number, launches, their sources, its buffers with layouts. `find`
    returns the part if another thread has packed it, `keep` stores the part packed here."""

    number: int
    launches: Sequence[int]
    sources: Sequence[Source]
    buffers: Sequence[tuple[int, Layout]]
    find: Callable[[], PackedPart | None]
    keep: Callable[[PackedPart], None]


class PackJob:
    """A job that packs components one after the other. `parts` has the finished ones by number;
    when it is `over`, no more will come. `keys` identify the sources and recipe of each."""

    def __init__(
        self,
        stream: Stream,
        tasks: Sequence[Task],
        keys: Mapping[int, Hashable],
        prepare: Callable[[], Prepare],
    ) -> None:
        self.stream, self.keys = stream, keys
        self.parts: dict[int, PackedPart] = {}
        self.free_buffers: list[tuple[torch.Tensor, int]] = []
        self._tasks, self._prepare = tasks, prepare
        self._begun = self._done = False
        self._process = os.getpid()

    @property
    def over(self) -> bool:
        """True if it is done, or was left behind in the parent process by a fork."""
        return self._done or self._process != os.getpid()

    def take_room(self) -> tuple[torch.Tensor, int]:
        """Return memory for a streaming call, as `large_pages.room`; `free_buffers` recycles it."""
        try:
            return self.free_buffers.pop()
        except IndexError:
            # On small pages: large ones take far longer to be had, and this is soon given back.
            return room(self.stream.bytes, torch.uint8, asking=False)

    def begin(self) -> None:
        """Submit the job to the background thread, once."""
        if not self._begun:
            self._begun = True
            background.submit(self._run)

    def _run(self) -> Iterator[None]:
        try:
            prepare = self._prepare()
            arena = HugePageArena(
                (layout for t in self._tasks for _, layout in t.buffers), waiting=False
            )
            most = max(sum(source.room for source in task.sources) for task in self._tasks)
            with closing(_Copies(most)) as copies:
                for task in self._tasks:
                    packed = partial(self._packed, task, prepare, arena, copies)
                    part = once(self.keys[task.number], task.find, packed)
                    if part is not None:
                        self.parts[task.number] = part
                    yield
        finally:
            self._done, self._tasks = True, ()

    def _packed(
        self, task: Task, prepare: Prepare, arena: HugePageArena, copies: _Copies
    ) -> PackedPart | None:
        addresses: dict[int, int] = {}
        place = 0
        for source in task.sources:
            if not copies.take(source, place):
                return None
            addresses[source.number] = copies.address + place
            place += source.room
        part = PackedPart(tuple(arena.tensor(layout) for _, layout in task.buffers))
        for (buffer, _), tensor in zip(task.buffers, part.tensors, strict=True):
            addresses[buffer] = tensor.data_ptr()
        prepare(addresses, task.launches)
        task.keep(part)
        return part


def can_copy() -> bool:
    """Return whether this system supports jobs."""
    return hasattr(os, "memfd_create")


class _Copies:
    """Memory for copies of parameters, which are written to a file in memory: if a parameter's
    memory is unmapped, the write fails."""

    def __init__(self, size: int) -> None:
        self._file = os.memfd_create("kernelmill")
        os.ftruncate(self._file, max(size, 1))
        self._mapped = mmap.mmap(self._file, max(size, 1))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapped))

    def close(self) -> None:
        os.close(self._file)

    def take(self, source: Source, place: int) -> bool:
        """Copy the memory that kernels read of a parameter; return whether it is as it was bound.
        The version is compared when the copy's packing is taken into use."""
        parameter, contents = source.parameter, source.parameter.state.contents
        if not parameter.is_there or not self._copied(parameter.address, source.bytes, place):
            return False
        page_out(parameter.address, parameter.address + source.bytes)
        if not parameter.is_there or contents is None:
            return False
        if parameter.watch is not None:
            write_watch().look()
            if parameter.watch.writes != contents.writes:
                return False
        copy = self.address + place
        return parameter.copy is not None or copy_holds(contents, copy, source.bytes)

    def _copied(self, source: int, count: int, place: int) -> bool:
        done = 0
        while done < count:
            moved = _pwrite()(self._file, source + done, count - done, place + done)
            if moved <= 0:
                return False
            done += moved
        return True


@cache
def _pwrite() -> Any:
    function = ctypes.CDLL(None).pwrite
    function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
    function.restype = ctypes.c_ssize_t
    return function

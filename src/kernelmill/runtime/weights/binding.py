"""A set of bound parameters, and its table for the native entry (layout.py).

The background packs weights that calls have streamed so far (streaming.py). Meanwhile the user may
write to the parameters, move or free them. So the system first copies the sources of a component,
which returns an error for unmapped memory; then the parameter is compared with its state at
binding. The next call packs a changed one.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import field
from functools import cache, partial
from time import sleep as wait
from typing import Any, TypeVar

import torch

from kernelmill.core.after_fork import after_fork
from kernelmill.core.dataclass import dataclass
from kernelmill.runtime import background
from kernelmill.runtime.layout import (
    BindingTable,
    EdgeRecord,
    PackedRecord,
    PagesRecord,
    ParameterRecord,
    records,
    words,
)  # fmt: skip
from kernelmill.runtime.memory.allocation import HugePageArena, empty_strided, room
from kernelmill.runtime.weights.contents import (
    BoundParameter,
    Contents,
    Way,
    copy_holds,
    page_out,
    span_of,
)
from kernelmill.runtime.weights.page_scan import merged
from kernelmill.runtime.weights.streaming import Component, StreamLayout
from kernelmill.runtime.weights.write_watch import write_watch
from kernelmill.torch_internals.tensors import impl_at

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
            wait(_LOOK_SECONDS)
    return found


Prepare = Callable[[Mapping[int, int], Sequence[int]], None]
"""Runs prepare launches with buffers at these addresses."""

_APART = 4096


@dataclass(eq=False)
class PackedPart:
    """The packed buffers of one component, in the order of `Component.buffers`."""

    tensors: tuple[torch.Tensor, ...]


def pack(
    component: Component, sources: Mapping[int, int], arena: HugePageArena, prepare: Prepare
) -> PackedPart:
    """Pack a component, whose sources are at these addresses, and free what only its launches
    read."""
    kept = {buffer: arena.tensor(layout) for buffer, layout in component.buffers.items()}
    passing = {buffer: empty_strided(*layout) for buffer, layout in component.passing.items()}
    made = {buffer: tensor.data_ptr() for buffer, tensor in (kept | passing).items()}
    prepare({**sources, **made}, component.launches)
    return PackedPart(tuple(kept.values()))


@dataclass(frozen=True)
class PackSource:
    """A parameter that a component is packed from: its buffer number, and the bytes from the first
    element that kernels read to the last."""

    number: int
    parameter: BoundParameter
    bytes: int

    @classmethod
    def of(cls, number: int, parameter: BoundParameter, tensor: torch.Tensor) -> PackSource:
        """Return the source for a parameter; kernels read `tensor`."""
        first, last = span_of(tensor)
        return cls(number, parameter, last - first)

    @property
    def room(self) -> int:
        """Bytes reserved for a copy."""
        return -(-self.bytes // _APART) * _APART


@dataclass(frozen=True)
class Task:
    """A component to pack, its number and its sources. `find` returns the part if another thread
    has packed it, `keep` stores the part packed here."""

    number: int
    component: Component
    sources: Sequence[PackSource]
    find: Callable[[], PackedPart | None]
    keep: Callable[[PackedPart], None]


class PackJob:
    """A job that packs components one after the other. `parts` has the finished ones by number;
    when it is `over`, no more will come. `keys` identify the sources and recipe of each."""

    def __init__(
        self,
        stream: StreamLayout,
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
            layouts = (layout for t in self._tasks for layout in t.component.buffers.values())
            arena = HugePageArena(layouts, waiting=False)
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
        part = pack(task.component, addresses, arena, prepare)
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

    def take(self, source: PackSource, place: int) -> bool:
        """Copy the memory that kernels read of a parameter; return whether it is unchanged since
        its binding. The version is compared when the copy's packing is taken into use."""
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


@dataclass(eq=False)
class BoundSet:
    """An immutable set of parameters ready for calls. `address` is its native table. If its `job`
    has yet to pack the components `pending`, it serves one call only, which streams."""

    bound: Mapping[int, BoundParameter]
    parts: tuple[PackedPart | None, ...]
    packed: Mapping[int, torch.Tensor]
    pending: frozenset[int] = frozenset()
    job: PackJob | None = None
    address: int = 0
    keep: list[Any] = field(default_factory=list[Any])
    _room: tuple[torch.Tensor, int] | None = None

    @property
    def is_alive(self) -> bool:
        """True if all memory that it is bound to is still allocated."""
        return all(parameter.storage() is not None for parameter in self.bound.values())

    def is_for(self, arguments: Sequence[object]) -> bool:
        """Return whether its parameters are these objects."""
        return all(id(arguments[i]) == its.object for i, its in self.bound.items())

    def memory(self, job: PackJob) -> int:
        """Return the address of the memory into which its call packs pending components."""
        if self._room is None:
            self._room = job.take_room()
        base, first = self._room
        return base.data_ptr() + first

    @contextmanager
    def streaming(self) -> Generator[None]:
        """Pause background work during the launches of its call, if components are pending. Pending
        ones may be packed in the background afterwards."""
        try:
            with background.paused():
                yield
        finally:
            if self.job is not None:
                if self._room is not None:
                    self.job.free_buffers.append(self._room)
                self.job.begin()


def write_table(binding: BoundSet, places: Mapping[int, int]) -> None:
    """Build the native table of a binding. `places` has the buffer number of each argument."""
    bound = list(binding.bound.values())
    # Pages before edges: an edge that becomes loose in between is checked twice, and not never.
    pages = merged([each.watch.pages for each in bound if each.watch is not None])
    rows = records(
        ParameterRecord, [_record(binding.keep, parameter, places) for parameter in bound]
    )
    packed = records(
        PackedRecord, [PackedRecord(i, t.data_ptr()) for i, t in binding.packed.items()]
    )
    page_rows = records(PagesRecord, [PagesRecord(*each) for each in pages])
    state = write_watch().state
    table = BindingTable(
        len(rows), ctypes.addressof(rows), len(packed), ctypes.addressof(packed),
        impl_at.get() or 0,
        ctypes.addressof(state), len(page_rows), ctypes.addressof(page_rows), 0,
    )  # fmt: skip
    binding.keep += [rows, packed, page_rows, state, table]
    binding.address = ctypes.addressof(table)


def _edges(keep: list[Any], parameter: BoundParameter) -> Iterator[EdgeRecord]:
    watch, contents = parameter.watch, parameter.state.contents or Contents()
    if watch is None:
        return
    for loose, (start, end), known in zip(watch.loose, watch.edges, contents.edges, strict=True):
        if loose and end > start:
            yield EdgeRecord(start, end - start, _kept(keep, known))


def _record(
    keep: list[Any], parameter: BoundParameter, places: Mapping[int, int]
) -> ParameterRecord:
    state = parameter.state
    contents = state.contents or Contents()
    layout, edges = words(state.layout), records(EdgeRecord, [*_edges(keep, parameter)])
    keep += [layout, edges]
    return ParameterRecord(
        object=parameter.object,
        type=id(parameter.type),
        argument=parameter.argument,
        impl=state.impl,
        data=state.data,
        version=state.version or 0,
        versioned=parameter.way is not Way.UNREAD and state.version is not None,
        inference=state.inference,
        negated=state.negated,
        rank=len(state.layout) // 2,
        dtype=state.dtype,
        layout=ctypes.addressof(layout),
        buffer=places[parameter.argument],
        address=parameter.address,
        pieces=contents.sample.count,
        piece_bytes=contents.sample.width,
        pitch=contents.sample.pitch,
        contents=_kept(keep, contents.sample.contents),
        edge_count=len(edges),
        edges=ctypes.addressof(edges),
        written_at=0 if parameter.watch is None else parameter.watch.address,
        written=parameter.looks,
        digest_bytes=contents.digest_bytes,
        digest=contents.digest,
    )


def _kept(keep: list[Any], contents: bytes) -> int:
    """Return the address of a copy of these bytes, which `keep` owns."""
    made = ctypes.create_string_buffer(contents, len(contents))
    keep.append(made)
    return ctypes.addressof(made)

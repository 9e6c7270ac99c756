"""A set of bound parameters, and its table for the native entry (layout.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import torch

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
from kernelmill.runtime.weights.bound_parameters import BoundParameter
from kernelmill.runtime.weights.contents import Contents, Way
from kernelmill.runtime.weights.pack_job import PackedPart, PackJob
from kernelmill.runtime.weights.page_scan import merged
from kernelmill.runtime.weights.write_watch import write_watch
from kernelmill.torch_internals.tensors import impl_at


@dataclass(eq=False)
class Binding:
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


def write_table(binding: Binding, places: Mapping[int, int]) -> None:
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

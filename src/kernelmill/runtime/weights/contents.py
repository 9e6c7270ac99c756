"""Checks, at each call, that weights still have the contents that were packed.

Small contents are compared whole. Larger memory is watched page by page where the system permits
(write_watch.py). Elsewhere pieces are compared; or all of it, by a digest, if the user
wants that or the weight has no version counter.

Pieces of a parameter's contents, compared at each call where written pages are not reported.

What changes a weight as a whole changes the pieces too. They are spread so thin that comparing them
takes about a hundredth of the time in which a call can read the weight from memory.

Long-lived arguments in their state at binding.

Nothing here refers to a tensor, not even weakly: `torch.utils.swap_tensors` refuses tensors with
weak references. A tensor is identified by the addresses of its object and its TensorImpl; and by
its storage, whose death releases the binding.

Weights whose memory is a file: of a compiled model, or a nameless one for a model's own weights.

Kernels read most weights in packed form only. Pages of a mapped weight come into memory when
something reads them, and leave it when the weight has been packed, so that a process needs memory
for one form of its weights.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Union
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from kernelmill.config.compiler_config import CheckWeights
from kernelmill.core.dataclass import dataclass
from kernelmill.runtime.argument_validation import has_memory
from kernelmill.runtime.executor import executor
from kernelmill.runtime.memory.allocation import empty_strided
from kernelmill.runtime.weights.page_scan import PAGE, SharedMappings
from kernelmill.runtime.weights.write_watch import Span, WatchedSpan, write_watch
from kernelmill.torch_internals.libraries import torch_library
from kernelmill.torch_internals.tensors import handle_of, version_of

PIECE_BYTES = 64
"""A cache line."""

APART_BYTES = 256 * 1024
LEAST_PIECES = 4


@dataclass(frozen=True)
class SampledBytes:
    """`count` pieces of `width` bytes, `pitch` bytes apart from the first element on."""

    count: int
    width: int
    pitch: int
    contents: bytes


NOTHING = SampledBytes(0, 0, 0, b"")


def memory_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a CPU tensor from its first element to its last, gaps included."""
    return memory_in(tensor.untyped_storage(), *span_of(tensor))


def memory_in(storage: torch.UntypedStorage, first: int, last: int) -> memoryview:
    """Return the bytes of a storage on the CPU from `first` to before `last`."""
    flat = empty_strided((0,), (1,), torch.uint8).set_(storage, first, (last - first,), (1,))
    contents: Any = flat.numpy()
    return memoryview(contents).cast("B")


def memory_behind(storage: torch.UntypedStorage) -> tuple[int, int]:
    """Return the first and end address of a storage."""
    first = storage.data_ptr()
    return first, first + storage.nbytes()


def span_of(tensor: Tensor) -> tuple[int, int]:
    """Return the byte range of a tensor's elements in its storage."""
    width = tensor.element_size()
    first = int(tensor.storage_offset()) * width
    if tensor.numel() == 0:
        return first, first
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (reach + 1) * width


def take_sample(tensor: Tensor) -> SampledBytes:
    """Return the current pieces; none for an empty tensor."""
    if tensor.numel() == 0:
        return NOTHING
    start, end = span_of(tensor)
    span = end - start
    width = min(span, PIECE_BYTES)
    count = min(max(LEAST_PIECES, span // APART_BYTES), span // width)
    pitch = (span - width) // max(count - 1, 1) // PIECE_BYTES * PIECE_BYTES
    return SampledBytes(count, width, pitch, pieces_at(tensor.data_ptr(), count, width, pitch))


def pieces_at(address: int, count: int, width: int, pitch: int) -> bytes:
    """Return the contents of the pieces from this address on."""
    last = pitch * (count - 1) + width
    memory = memoryview((ctypes.c_char * last).from_address(address)).cast("B")
    return b"".join([memory[at : at + width] for at in range(0, last, pitch or last)])


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

    sample: SampledBytes = NOTHING
    writes: int = 0
    edges: tuple[bytes, bytes] = (b"", b"")
    digest: int = 0
    digest_bytes: int = 0


def memory_span(tensor: torch.Tensor) -> Span:
    """Return the first and end address of a tensor's elements."""
    first, last = span_of(tensor)
    return tensor.data_ptr(), tensor.data_ptr() + last - first


def way_for(
    tensor: torch.Tensor, check: CheckWeights, watch: WatchedSpan | None, mappings: SharedMappings
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


def read_contents(tensor: torch.Tensor, way: Way, watch: WatchedSpan | None) -> Contents | None:
    """Return the current contents; None if the memory cannot be watched any more."""
    start, end = memory_span(tensor)
    size = end - start
    if way is Way.UNREAD or not size:
        return Contents()
    if way is Way.WHOLE:
        return Contents(SampledBytes(1, size, 0, ctypes.string_at(start, size)))
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


_LEAST_BYTES = 16 * mmap.PAGESIZE
_PAGE_OUT = 21
"""MADV_PAGEOUT, of Linux 5.4 (madvise(2)): pages as they are in the file leave memory."""

_mappings: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()
"""By first address."""


def move_to_disk(module: torch.nn.Module, folder: Path) -> None:
    """Move the parameters and buffers of a module to files in `folder` that have no name. OSError
    if the folder cannot hold them: some may have moved then.

    Tensors of 64 KiB at least that are plain, on the CPU and neither shared with other processes
    nor moved before move.
    As after `module.to`, a tensor outside of the module that had the same memory keeps the old one.
    """
    by_storage: dict[int, list[Tensor]] = {}
    for tensor in chain(module.parameters(), module.buffers()):
        if _can_move(tensor):
            by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    for first in list(by_storage):
        _move(by_storage.pop(first), folder)


def note_mapping(mapping: mmap.mmap, address: int) -> None:
    """Note that weights lie in a mapping, which begins at `address`."""
    _mappings[address] = mapping


def page_out(start: int, end: int) -> None:
    """Let pages of a mapped weight leave memory, written ones excepted; nothing for other memory.
    Pages that cannot be written stay in memory for other processes."""
    for first, mapping in list(_mappings.items()):
        if first <= start < first + len(mapping):
            offset = -(-(start - first) // mmap.PAGESIZE) * mmap.PAGESIZE
            advice = mmap.MADV_DONTNEED if memoryview(mapping).readonly else _PAGE_OUT
            if offset < end - first:
                with suppress(OSError):  # of an older system: they stay
                    mapping.madvise(advice, offset, end - first - offset)


def _can_move(tensor: Tensor) -> bool:
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    if not plain or tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg():
        return False
    storage = tensor.untyped_storage()
    mapped = storage.is_shared() or storage.data_ptr() in _mappings
    return storage.nbytes() >= _LEAST_BYTES and not mapped


def _move(tensors: list[Tensor], folder: Path) -> None:
    """Move tensors of one storage."""
    size = tensors[0].untyped_storage().nbytes()
    with TemporaryFile(dir=folder) as file:
        file.write(memory_in(tensors[0].untyped_storage(), 0, size))
        file.flush()
        os.fdatasync(file.fileno())  # pages that are not on disk yet cannot leave memory
        mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    flat = torch.frombuffer(mapping, dtype=torch.uint8)
    note_mapping(mapping, flat.data_ptr())
    for tensor in tensors:
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            moved = torch.empty(0, dtype=tensor.dtype)
            offset, shape, strides = tensor.storage_offset(), tensor.shape, tensor.stride()
            tensor.data = moved.set_(flat.untyped_storage(), offset, shape, strides)


OnDeath = Union[Callable[[object], None], None]
"""A callback for the death of a storage."""


@dataclass(frozen=True)
class ParameterState:
    """A parameter's state at binding. `version` is None where torch counts none or hides it."""

    impl: int
    data: int
    version: int | None
    inference: bool
    negated: bool
    dtype: int
    layout: tuple[int, ...]
    contents: Contents | None


@dataclass
class BoundParameter:
    """A bound parameter: its object's address and class, its storage and that one's address. `copy`
    is read by kernels if strides differ. `looks` is the watch's number when the state was read."""

    argument: int
    object: int
    type: type
    storage: weakref.ref[torch.UntypedStorage]
    base: int
    state: ParameterState
    way: Way
    watch: WatchedSpan | None = None
    copy: torch.Tensor | None = None
    looks: int = 0

    @property
    def address(self) -> int:
        """Address that kernels read."""
        return self.state.data if self.copy is None else self.copy.data_ptr()

    @property
    def is_there(self) -> bool:
        """True if its storage is alive and at the same address."""
        storage = self.storage()
        return storage is not None and storage.data_ptr() == self.base


class BoundParameters:
    """Factory of the bound parameters of a program. Something is packed from the arguments
    `packed`; `validate(argument number, value)` returns the tensor that kernels may read for an
    argument, itself or a copy, or raises InputError."""

    def __init__(
        self,
        arguments: Collection[int],
        packed: Collection[int],
        validate: Callable[[int, object], torch.Tensor],
    ) -> None:
        handle_of.require()  # now, and not when the first weight is bound
        self._arguments, self._packed, self._validate = arguments, packed, validate
        self.check: CheckWeights = "auto"
        self.copies = 0

    def read(
        self, arguments: Sequence[object], old: Mapping[int, BoundParameter], on_death: OnDeath
    ) -> dict[int, BoundParameter]:
        """Return bound parameters for the current state of these arguments; an unchanged one keeps
        its parameter. InputError names one that cannot be bound."""
        if self.check == "auto":
            write_watch().look()
        found = {i: old[i] for i in self._arguments if i in old and _same(old[i], arguments[i])}
        fitting = {i: self._validate(i, arguments[i]) for i in self._arguments if i not in found}
        tensors = {i: t for i in fitting if isinstance(t := arguments[i], torch.Tensor)}
        watches, mappings = self._watches(tensors, fitting), SharedMappings()
        for i, tensor in tensors.items():
            copy = None if fitting[i] is tensor else fitting[i]
            self.copies += copy is not None
            watch = watches.get(memory_span(tensor)) if self._counts(i, copy) else None
            if copy is not None and watch is not None:
                copy.copy_(tensor.detach())  # once more, now that writes are seen
            way = Way.UNREAD
            if self._counts(i, copy):
                way = way_for(tensor, self.check, watch, mappings)
            found[i] = _bind(i, tensor, copy, watch, way, on_death)
        if watches:
            _settle(found[i] for i in tensors)
        return {i: found[i] for i in self._arguments}

    def read_once(self, arguments: Sequence[object]) -> dict[int, BoundParameter]:
        """Return bound parameters for one immediate call, without detection of later writes.
        Existing bindings and the watch over memory are not touched."""
        found: dict[int, BoundParameter] = {}
        for i in self._arguments:
            fitting, tensor = self._validate(i, arguments[i]), arguments[i]
            assert isinstance(tensor, torch.Tensor)
            copy = None if fitting is tensor else fitting
            found[i] = _bind(i, tensor, copy, None, Way.UNREAD, None)
        return found

    def _counts(self, number: int, copy: torch.Tensor | None) -> bool:
        """Return whether kernels read a copy or packing of this argument: writes make it stale."""
        return copy is not None or number in self._packed

    def _watches(
        self,
        tensors: Mapping[int, torch.Tensor],
        fitting: Mapping[int, torch.Tensor],
    ) -> Mapping[Span, WatchedSpan]:
        if self.check != "auto":
            return {}
        spans = (
            memory_span(tensor)
            for i, tensor in tensors.items()
            if i in self._packed or fitting[i] is not tensor
        )
        return write_watch().watch(span for span in spans if span[1] - span[0] > WATCHED_BYTES)


def _bind(
    number: int,
    tensor: torch.Tensor,
    copy: torch.Tensor | None,
    watch: WatchedSpan | None,
    way: Way,
    on_death: OnDeath,
) -> BoundParameter:
    looks = 0 if watch is None else watch.looks
    state = read_state(tensor, way, watch)
    storage = tensor.untyped_storage()
    reference = weakref.ref(storage, on_death)
    base, kind = storage.data_ptr(), type(tensor)
    return BoundParameter(number, id(tensor), kind, reference, base, state, way, watch, copy, looks)


def _settle(parameters: Iterable[BoundParameter]) -> None:
    """Accept writes made during binding: binding allocates on the heap pages at weights' edges,
    which the native entry compares from now on."""
    write_watch().look()
    for parameter in parameters:
        watch, contents = parameter.watch, parameter.state.contents
        if watch is not None and contents is not None and watch.writes == contents.writes:
            parameter.looks = watch.looks


def _same(parameter: BoundParameter, argument: object) -> bool:
    """Return whether an argument has the state it was bound in. `looks` is updated."""
    if id(argument) != parameter.object or type(argument) is not parameter.type:
        return False
    assert isinstance(argument, torch.Tensor)
    if not has_memory(argument) or parameter.storage() is not argument.untyped_storage():
        return False
    if parameter.watch is not None:
        parameter.looks = parameter.watch.looks
    state = read_state(argument, parameter.way, parameter.watch)
    return state.contents is not None and state == parameter.state


def read_state(tensor: torch.Tensor, way: Way, watch: WatchedSpan | None) -> ParameterState:
    """Return the current state of a parameter."""
    layout = (*tensor.shape, *tensor.stride())
    return ParameterState(
        handle_of.require()(tensor), tensor.data_ptr(), _version(tensor), tensor.is_inference(),
        tensor.is_neg(), scalar_type(tensor), layout, read_contents(tensor, way, watch),
    )  # fmt: skip


def _version(tensor: torch.Tensor) -> int | None:
    count = version_of.get()
    return None if count is None or tensor.is_inference() else count(tensor)


def scalar_type(tensor: torch.Tensor) -> int:
    """Return the number that torch's C shims have for the tensor's dtype."""
    handle, number = ctypes.c_void_p(handle_of.require()(tensor)), ctypes.c_int32()
    torch_library().aoti_torch_get_dtype(ctypes.byref(handle), ctypes.byref(number))
    return number.value

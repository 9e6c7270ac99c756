"""Weights whose memory is a file: of a compiled model, or a nameless one for a model's own weights.

Kernels read most weights in packed form only. Pages of a mapped weight come into memory when
something reads them, and leave it when the weight has been packed, so that a process needs memory
for one form of its weights.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from kernelmill.runtime.weights.contents import memory_in

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

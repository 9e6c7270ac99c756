"""Memory of large results, reused once the caller has dropped the result.

Fresh memory costs a page fault every 4 KiB, which takes longer than a kernel that only reads and
writes. The reference count of a piece's storage is the test for use: every tensor, view, array or
saved variable over it holds one.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence

import torch

from kernelmill.core.after_fork import ReentryLock
from kernelmill.core.dataclass import dataclass
from kernelmill.runtime.memory import large_pages
from kernelmill.runtime.memory.allocation import Alias, alias, elements_of, empty_strided
from kernelmill.torch_internals.tensors import storage_users

LARGE_BYTES = 1 << 20
"""Least size of results for which free memory is searched."""

KEPT_BYTES = 512 << 20
"""Most bytes that are kept, in use or not; the oldest piece is dropped first."""


@dataclass
class _Piece:
    """Memory of one result. `storage` is the one Python object for the base's; `alone` is its state
    while nobody else refers to it."""

    base: torch.Tensor
    storage: torch.UntypedStorage
    bytes: int
    users: Callable[[torch.UntypedStorage], int]
    alone: tuple[int, ...] = ()

    def state(self) -> tuple[int, ...]:
        """Return references to the storage from tensors and from Python, its address and its size:
        a storage that moved or was resized is another piece."""
        storage = self.storage
        users, names = self.users(storage), sys.getrefcount(storage)
        return users, names, storage.data_ptr(), storage.nbytes()


class ResultMemory:
    """The result memory of one process. Any thread may request tensors."""

    def __init__(self, alias: Alias, limit: int = KEPT_BYTES) -> None:
        self._alias = alias
        self._users = storage_users.require()
        self._limit = limit
        self._pieces: list[_Piece] = []
        self._busy = ReentryLock()

    @property
    def kept_bytes(self) -> int:
        """Bytes of all pieces, in use or not."""
        return sum(piece.bytes for piece in self._pieces)

    def tensor(
        self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, elements: int
    ) -> torch.Tensor:
        """Return an unfilled tensor over `elements` elements that nobody else refers to."""
        bytes = elements * dtype.itemsize
        if bytes > self._limit:
            return empty_strided(shape, strides, dtype)
        with self._busy.enter() as first:
            if not first:  # a signal handler, in the midst of looking for a piece
                return empty_strided(shape, strides, dtype)
            piece = self._find(bytes, dtype) or self._new(elements, dtype, bytes)
            self._pieces.append(piece)
            return self._alias(piece.base, shape, strides, 0)

    def _find(self, bytes: int, dtype: torch.dtype) -> _Piece | None:
        """Return a free piece of this size, removed from the list."""
        for number, piece in enumerate(self._pieces):
            if piece.bytes == bytes and piece.base.dtype == dtype and piece.state() == piece.alone:
                del self._pieces[number]
                # A weight was in it: only the death of its storage reveals that it is gone, else
                # another one in the same place could be taken for it.
                return None if weakref.getweakrefcount(piece.storage) else piece
        return None

    def _new(self, elements: int, dtype: torch.dtype, bytes: int) -> _Piece:
        while self._pieces and self.kept_bytes + bytes > self._limit:
            self._pieces.pop(0)
        base = empty_strided((elements,), (1,), dtype)
        large_pages.ask(base)
        piece = _Piece(base, base.untyped_storage(), bytes, self._users)
        piece.alone = piece.state()
        return piece


memory = ResultMemory(alias) if storage_users.works and alias is not None else None
"""The memory of results; None if this torch cannot alias memory unseen by tracing."""


def result_tensor(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor as `empty_strided` does, in memory of an earlier result if some is free."""
    elements = elements_of(tuple(shape), tuple(strides))
    if memory is None or elements * dtype.itemsize < LARGE_BYTES:
        return empty_strided(shape, strides, dtype)
    return memory.tensor(shape, strides, dtype, elements)

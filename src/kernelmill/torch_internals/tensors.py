"""Tensors: making them without the dispatcher, their versions, the owners of their memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmill.torch_internals.objects import word_at
from kernelmill.torch_internals.registry import internal

Allocate = Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]
Alias = Callable[[torch.Tensor, Sequence[int], Sequence[int], int], torch.Tensor]


def _extension() -> Any:
    # Part of torch's extension module: it is there without torch._dynamo.
    return sys.modules["torch._C._dynamo.guards"]


@internal(
    "tensors.allocate",
    reason="making results without the dispatcher, where modes and default devices do not count",
    fallback="results are made by torch.empty_strided, and calls are checked in Python",
)
def direct_allocation() -> Allocate | None:
    """Return the function (shape, strides, dtype) -> tensor, in 64-byte aligned memory."""
    function: Allocate = _extension()._empty_strided_cpu
    made = function((2, 3), (3, 1), torch.int16)
    right = (
        tuple(made.shape) == (2, 3)
        and made.stride() == (3, 1)
        and made.dtype == torch.int16
        and made.device.type == "cpu"
        and made.data_ptr() % 64 == 0
    )
    return function if right else None


@internal(
    "tensors.alias",
    reason="laying results over memory that was used before, without a trace in autograd",
    fallback="the memory of large results is not used again",
)
def alias() -> Alias | None:
    """Return the function (tensor, shape, strides, offset in elements) -> tensor over it."""
    function: Alias = _extension()._reinterpret_tensor
    base = torch.arange(6, dtype=torch.float32)
    made = function(base, (2, 2), (2, 1), 2)
    right = made.tolist() == [[2.0, 3.0], [4.0, 5.0]] and made.data_ptr() == base.data_ptr() + 8
    return function if right else None


@internal(
    "tensors.storage_users",
    reason="seeing that nobody has a result any more",
    fallback="the memory of large results is not used again",
)
def storage_users() -> Callable[[torch.UntypedStorage], int] | None:
    """Return the function that counts the tensors over a storage."""
    count: Any = torch._C._storage_Use_Count

    def users(storage: torch.UntypedStorage) -> int:
        return count(storage._cdata)

    base = torch.empty(4)
    storage = base.untyped_storage()
    alone = users(storage)
    view = base[1:]
    return users if users(storage) == alone + 1 and view.numel() else None


@internal(
    "tensors.handle",
    reason="knowing a weight again by its TensorImpl, and asking torch's C functions about it",
    fallback="graphs run in torch",
)
def handle_of() -> Callable[[torch.Tensor], int] | None:
    """Return the function that gives the address of a tensor's TensorImpl."""

    def handle(tensor: torch.Tensor) -> int:
        return tensor._cdata

    a, b = torch.empty(1), torch.empty(1)
    kept = a.detach()
    different = len({handle(tensor) for tensor in (a, b, kept)}) == 3
    return handle if different and handle(a) == handle(a) > 0 else None


@internal(
    "tensors.version",
    reason="noticing that a weight was written to",
    fallback="weights are read whole at each call where their memory cannot be watched",
)
def version_of() -> Callable[[torch.Tensor], int] | None:
    """Return the function that counts the writes to a tensor that torch has seen."""

    def version(tensor: torch.Tensor) -> int:
        return tensor._version

    sample = torch.zeros(2)
    before = version(sample)
    sample[:1].add_(1)
    return version if version(sample) == before + 1 else None


@internal(
    "tensors.impl_place",
    reason="finding tensors' TensorImpls in the objects of a call without running Python",
    fallback="calls are checked in Python",
)
def impl_at() -> int | None:
    """Return the offset of the address of the TensorImpl in a tensor's object."""
    samples = (torch.empty(2), torch.nn.Parameter(torch.empty(1)), torch.empty(3, 2).t())
    return next((n for n in (16, 24) if all(word_at(id(t) + n) == t._cdata for t in samples)), None)


@internal(
    "tensors.storage_place",
    reason="seeing natively that arguments do not share memory",
    fallback="calls are checked in Python",
)
def storage_at() -> int | None:
    """Return the offset of the address of the storage in a TensorImpl."""
    samples = (torch.empty(2), torch.nn.Parameter(torch.empty(1)), torch.empty(4)[1:])
    places = [(sample._cdata, sample.untyped_storage()._cdata) for sample in samples]
    offsets = range(8, 64, 8)
    found = (n for n in offsets if all(word_at(at + n) == storage for at, storage in places))
    return next(found, None)

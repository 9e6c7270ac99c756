"""Realigned arguments: copies of misaligned and of lazily negated tensors, for one call. Copies of
updated arguments are copied back. Dtypes that only ATen reads need no alignment, and may be lazily
conjugated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.runtime.argument_validation import PLAIN_TENSORS, alignment
from kernelmill.runtime.memory.allocation import empty_strided


@dataclass(frozen=True)
class RealignedArguments:
    """Arguments of a call with some replaced by copies: `originals` by the id of their copies, and
    in `updated` the (original, copy) pairs to be written back."""

    arguments: tuple[Any, ...]
    originals: Mapping[int, Any]
    updated: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()

    def finish(self, results: list[Any]) -> list[Any]:
        """Write back updated copies; return the results, copied arguments replaced by originals."""
        for original, copy in self.updated:
            original.detach().copy_(copy)
        return [self.originals.get(id(result), result) for result in results]


def realigned(
    arguments: Sequence[Any],
    among: Collection[int],
    updated: Collection[int] = (),
    by_memory: bool = False,
    suits: Callable[[int, torch.Tensor], bool] | None = None,
) -> RealignedArguments | None:
    """Return the arguments with misaligned tensors (at positions `among`) copied; None if none is,
    or one is not plain memory on the CPU. `by_memory`: operators count in their storages, which are
    copied whole. One that does not `suit` for other reasons has to be copied anyway: it stays."""
    made: list[Any] | None = None
    originals: dict[int, torch.Tensor] = {}
    back: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number in among:
        tensor = arguments[number]
        try:
            if type(tensor) not in PLAIN_TENSORS or not _is_misaligned(tensor):
                continue
            if suits is not None and not suits(number, tensor):
                continue
            copy = _whole_copy(tensor) if by_memory else _copy(tensor)
        except RuntimeError:
            return None
        made = list(arguments) if made is None else made
        made[number] = copy
        originals[id(copy)] = tensor
        if number in updated:
            back.append((tensor, copy))
    return None if made is None else RealignedArguments(tuple(made), originals, back)


def _is_misaligned(tensor: torch.Tensor) -> bool:
    """Return whether kernels cannot read its address. RuntimeError for a tensor without memory."""
    wanted = alignment(tensor.dtype)
    if tensor.is_neg():
        return tensor.device.type == "cpu" and not tensor.is_complex()
    return wanted > 1 and tensor.data_ptr() % wanted != 0


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides; expanded dims stay expanded."""
    shape, strides = tensor.shape, tensor.stride()
    once = tensor.detach()
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if stride == 0 and size > 1:
            once = once.narrow(dim, 0, 1)
    copy = empty_strided(tuple(once.shape), once.stride(), tensor.dtype)
    copy.copy_(once)
    return copy if once.shape == shape else copy.as_strided(shape, strides)


def _whole_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides and offset over a copy of the whole storage."""
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.element_size()
    memory = empty_strided((0,), (1,), tensor.dtype).set_(storage, 0, (count,), (1,))
    copy = empty_strided((count,), (1,), tensor.dtype)
    copy.copy_(memory.neg() if tensor.is_neg() else memory)
    return copy.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

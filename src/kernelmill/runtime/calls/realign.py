"""Arguments that kernels cannot read where they lie: misaligned and lazily negated tensors. They
are copied for a call, and the copies of those that it writes to back. What only ATen reads may lie
anywhere, lazily conjugated or not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.runtime.argument_validation import PLAIN_TENSORS, alignment
from kernelmill.runtime.memory.allocation import empty_strided


@dataclass(frozen=True)
class RealignedArguments:
    """The arguments of a call with copies in the place of some: `originals` has these, by the id of
    their copies, and `updated` what is to be copied back."""

    arguments: tuple[Any, ...]
    originals: Mapping[int, Any]
    updated: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()

    def finish(self, results: list[Any]) -> list[Any]:
        """After the call: bring back what it wrote; its results, with arguments as they came."""
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
    """These arguments, of which those `among` are tensors; None when none of them is misaligned, or
    one is more than plain memory on the CPU. `by_memory`: operators count in their storages, which
    are copied whole. One that does not `suit` for other reasons has to be copied anyway: it stays.
    """
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
    """RuntimeError for a tensor without memory of its own."""
    wanted = alignment(tensor.dtype)
    if tensor.is_neg():
        return tensor.device.type == "cpu" and not tensor.is_complex()
    return wanted > 1 and tensor.data_ptr() % wanted != 0


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements with the same strides; expanded dims stay so."""
    shape, strides = tensor.shape, tensor.stride()
    once = tensor.detach()
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if stride == 0 and size > 1:
            once = once.narrow(dim, 0, 1)
    copy = empty_strided(tuple(once.shape), once.stride(), tensor.dtype)
    copy.copy_(once)
    return copy if once.shape == shape else copy.as_strided(shape, strides)


def _whole_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same, over a copy of all of its storage."""
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.element_size()
    memory = empty_strided((0,), (1,), tensor.dtype).set_(storage, 0, (count,), (1,))
    copy = empty_strided((count,), (1,), tensor.dtype)
    copy.copy_(memory.neg() if tensor.is_neg() else memory)
    return copy.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

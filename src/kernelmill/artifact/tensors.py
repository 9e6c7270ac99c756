"""The tensors of a model as bytes of a file, and back as tensors over its mapping."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelmill.artifact.container import Artifact
from kernelmill.artifact.manifest import StoredTensor
from kernelmill.core.errors import StoreError, UnsupportedError
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.runtime.samples import span_of

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class WeightLayout:
    """Places tensors one behind the other; memory that several of them share comes once.

    `tensors` are by name, `roles` too. UnsupportedError for a tensor that is more, or less, than
    its memory: a subclass, a sparse one, one without data.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], roles: Mapping[str, str]) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.bytes = 0
        spans: dict[torch.UntypedStorage, tuple[int, int]] = {}
        for name, tensor in tensors.items():
            _check(name, tensor)
            first, last = span_of(tensor)
            known = spans.get(_memory(tensor), (first, last))
            spans[_memory(tensor)] = min(known[0], first), max(known[1], last)
        places: dict[torch.UntypedStorage, int] = {}
        found: list[StoredTensor] = []
        for name, tensor in tensors.items():
            memory = _memory(tensor)
            if memory not in places:
                places[memory] = self._place(tensor, *spans[memory])
            offset = places[memory] + span_of(tensor)[0] - spans[memory][0]
            dtype = str(tensor.dtype).removeprefix("torch.")
            layout = tuple(tensor.shape), tuple(tensor.stride())
            found.append(StoredTensor(name, roles[name], dtype, *layout, offset, places[memory]))
        self.weights = tuple(found)

    def _place(self, tensor: torch.Tensor, first: int, last: int) -> int:
        gap = -self.bytes % ALIGNMENT
        start = self.bytes + gap
        storage = tensor.untyped_storage()
        flat = torch.empty(0, dtype=torch.uint8).set_(storage, first, (last - first,), (1,))
        contents: Any = flat.numpy()
        self.pieces += [bytes(gap), memoryview(contents).cast("B")] if last > first else []
        self.bytes = start + last - first if last > first else self.bytes
        return start


def _check(name: str, tensor: torch.Tensor) -> None:
    if type(tensor) not in _PLAIN or tensor.layout != torch.strided or tensor.is_quantized:
        raise UnsupportedError(
            f"{name} is a {type(tensor).__name__} of layout {tensor.layout}, and only plain dense "
            "tensors can be kept in a file"
        )
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"{name} is on {tensor.device}, not on the CPU")


def _memory(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()  # one object, as long as there is a tensor over it


def tensors_over(
    mapping: mmap.mmap, base: int, size: int, weights: Sequence[StoredTensor]
) -> list[torch.Tensor]:
    """The weights as tensors over mapped memory, `base` bytes into it and `size` bytes long, those
    of a storage in one: who asks for elements by their place there finds no other's. Equal ones are
    one tensor. StoreError for one that would lie outside."""
    known: dict[StoredTensor, torch.Tensor] = {}
    storages = _Storages(mapping, base, size, weights)
    found: list[torch.Tensor] = []
    for weight in weights:
        unnamed = replace(weight, name="", role="")
        if unnamed not in known:
            known[unnamed] = storages.tensor(weight)
        found.append(known[unnamed])
    return found


class _Storages:
    """Storages over the mapped memory, as long as what lies in them."""

    def __init__(
        self, mapping: mmap.mmap, base: int, size: int, weights: Sequence[StoredTensor]
    ) -> None:
        self.mapping, self.base, self.size = mapping, base, size
        self._ends: dict[int, int] = {}
        for weight in weights:
            self._ends[weight.storage] = max(self._ends.get(weight.storage, 0), _end(weight))
        self._made: dict[int, torch.UntypedStorage] = {}

    def tensor(self, weight: StoredTensor) -> torch.Tensor:
        """The weight, over its storage."""
        empty = torch.empty(0, dtype=_dtype(weight))
        if 0 in weight.shape:
            return torch.empty_strided(weight.shape, weight.strides, dtype=empty.dtype)
        inside = 0 <= weight.storage <= weight.offset < _end(weight) <= self.size
        starts = (self.base + weight.storage, self.base + weight.offset)
        aligned = not any(start % empty.element_size() for start in starts)
        if not inside or not aligned or min((0, *weight.strides)) < 0:
            raise StoreError(f"weight {weight.name} lies outside of the weights")
        first = (weight.offset - weight.storage) // empty.element_size()
        return empty.set_(self._storage(weight.storage), first, weight.shape, weight.strides)

    def _storage(self, start: int) -> torch.UntypedStorage:
        if start not in self._made:
            count = min(self._ends[start], self.size) - start
            flat = torch.frombuffer(
                self.mapping, dtype=torch.uint8, count=count, offset=self.base + start
            )
            self._made[start] = flat.untyped_storage()
        return self._made[start]


def _dtype(weight: StoredTensor) -> torch.dtype:
    dtype: Any = getattr(torch, weight.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise StoreError(f"weight {weight.name} is of the dtype {weight.dtype}")
    return dtype


def _end(weight: StoredTensor) -> int:
    """Where the weight's last element ends."""
    if 0 in weight.shape:
        return weight.offset
    reach = sum((n - 1) * step for n, step in zip(weight.shape, weight.strides, strict=True))
    return weight.offset + (reach + 1) * _dtype(weight).itemsize


def tensors_of(artifact: Artifact) -> Sequence[torch.Tensor]:
    """The tensors of an artifact, over its file where it has one."""
    if artifact.file is None or not artifact.manifest.tensors:
        return artifact.tensors
    start, size, _ = artifact.file.sections["weights"]
    return tensors_over(artifact.file.mapping, start, size, artifact.manifest.tensors)

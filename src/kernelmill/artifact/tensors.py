"""The tensors of a model as bytes of a file, and back as tensors over its mapping."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from kernelmill.artifact.container import Artifact
from kernelmill.artifact.manifest import CallSpec, PackedBuffers, StoredTensor
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import StoreError, UnsupportedError
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.runtime.program import Program
from kernelmill.runtime.weights.contents import memory_in, memory_of, note_mapping, span_of
from kernelmill.torch_internals.tensors import version_of

_PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class HeldTensor:
    """A tensor of a program: its name there, its role ("parameter", "buffer" or "constant")."""

    name: str
    role: str
    tensor: torch.Tensor


def held_constants(constants: Iterable[torch.Tensor]) -> tuple[HeldTensor, ...]:
    """Return the tensors held by traced code, named by their numbers."""
    return tuple(HeldTensor(f"constant.{n}", "constant", each) for n, each in enumerate(constants))


class WeightLayout:
    """A layout of tensors one after the other; memory that several of them share comes once.

    UnsupportedError for a tensor that is more, or less, than its memory: a subclass, a sparse one,
    one without data.
    """

    def __init__(self, held: Sequence[HeldTensor]) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.bytes = 0
        spans: dict[torch.UntypedStorage, list[tuple[int, int]]] = {}
        for each in held:
            _check(each.name, each.tensor)
            # A storage is one object, as long as there is a tensor over it.
            spans.setdefault(each.tensor.untyped_storage(), []).append(span_of(each.tensor))
        kept = {memory: self._place(memory, found) for memory, found in spans.items()}
        self.weights = tuple(_stored(each, *kept[each.tensor.untyped_storage()]) for each in held)

    def _place(
        self, memory: torch.UntypedStorage, spans: Sequence[tuple[int, int]]
    ) -> tuple[int, tuple[int, int]]:
        """Return the first byte kept of a storage, and (offset, bytes) of its part in the file."""
        first, last = min(first for first, _ in spans), max(last for _, last in spans)
        gap = -self.bytes % ALIGNMENT
        storage = self.bytes + gap, last - first
        if last > first:
            self.pieces += [bytes(gap), memory_in(memory, first, last)]
            self.bytes = sum(storage)
        return first, storage


def _stored(held: HeldTensor, first: int, storage: tuple[int, int]) -> StoredTensor:
    """Return the record of a tensor whose storage, from byte `first` on, is at `storage`."""
    tensor = held.tensor
    dtype = str(tensor.dtype).removeprefix("torch.")
    layout = tuple(tensor.shape), tuple(tensor.stride())
    offset = storage[0] + span_of(tensor)[0] - first
    return StoredTensor(held.name, held.role, dtype, *layout, offset, storage)


def _check(name: str, tensor: torch.Tensor) -> None:
    if type(tensor) not in _PLAIN or tensor.layout != torch.strided or tensor.is_quantized:
        raise UnsupportedError(
            f"{name} is a {type(tensor).__name__} of layout {tensor.layout}, and only plain dense "
            "tensors can be kept in a file"
        )
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"{name} is on {tensor.device}, not on the CPU")


def tensors_over(
    mapping: mmap.mmap, base: int, size: int, weights: Sequence[StoredTensor]
) -> list[torch.Tensor]:
    """Return the weights as tensors over mapped memory, `base` bytes into it and `size` bytes long.
    Tensors of one storage share one, so that reads by its offsets find no other's. Equal ones are
    one tensor. StoreError for one that would lie outside."""
    storages: dict[tuple[int, int], torch.UntypedStorage] = {}
    known: dict[object, torch.Tensor] = {}
    found: list[torch.Tensor] = []
    for weight in weights:
        start, count = weight.storage
        if weight.storage not in storages and 0 not in weight.shape:
            if start % ALIGNMENT or not 0 <= start < start + count <= size:
                raise _outside(weight)
            flat = torch.frombuffer(mapping, dtype=torch.uint8, count=count, offset=base + start)
            storages[weight.storage] = flat.untyped_storage()
            note_mapping(mapping, flat.data_ptr() - base - start)
        layout = weight.dtype, weight.shape, weight.strides, weight.offset, weight.storage
        if layout not in known:
            known[layout] = _over(storages.get(weight.storage), weight)
        found.append(known[layout])
    return found


def _over(storage: torch.UntypedStorage | None, weight: StoredTensor) -> torch.Tensor:
    """Return the weight over its storage, which one without elements does not need."""
    dtype: Any = getattr(torch, weight.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise StoreError(f"weight {weight.name} is of the dtype {weight.dtype}")
    first, rest = divmod(weight.offset - weight.storage[0], dtype.itemsize)
    if rest or first < 0 or min((0, *weight.strides)) < 0:
        raise _outside(weight)
    try:
        if storage is None or 0 in weight.shape:
            return torch.empty_strided(weight.shape, weight.strides, dtype=dtype, device="cpu")
        empty = torch.empty(0, dtype=dtype, device="cpu")
        return empty.set_(storage, first, weight.shape, weight.strides)
    except (RuntimeError, TypeError) as error:  # a longer storage, or no sizes at all
        raise _outside(weight) from error


def _outside(weight: StoredTensor) -> StoreError:
    return StoreError(f"weight {weight.name} lies outside of the weights")


def tensors_of(artifact: Artifact) -> Sequence[torch.Tensor]:
    """Return the tensors of an artifact, over its file where it has one."""
    if artifact.file is None or not artifact.manifest.tensors:
        return artifact.tensors
    start, size, _ = artifact.file.sections["weights"]
    return tensors_over(artifact.file.mapping, start, size, artifact.manifest.tensors)


class PackCollector:
    """A record of the packing that a program does. `weights` are its long-lived arguments."""

    def __init__(self, weights: Sequence[torch.Tensor]) -> None:
        self._numbers = {id(weight): number for number, weight in enumerate(weights)}
        self.packed: list[PackedBuffers] = []
        self.pieces: list[bytes | memoryview] = []
        self._bytes = 0

    def find(self, recipe: str, sources: Sequence[torch.Tensor]) -> None:
        """Return nothing, so that everything is packed."""

    def keep(
        self, recipe: str, sources: Sequence[torch.Tensor], packed: Sequence[torch.Tensor]
    ) -> None:
        """Keep packed weights, see `PackPlace`. Weights that were copied first are left out."""
        if any(id(source) not in self._numbers for source in sources):
            return
        places: list[tuple[int, int]] = []
        for tensor in packed:
            gap = -self._bytes % ALIGNMENT
            contents = memory_of(tensor)
            self.pieces += [bytes(gap), contents]
            places.append((self._bytes + gap, len(contents)))
            self._bytes += gap + len(contents)
        numbers = tuple(self._numbers[id(source)] for source in sources)
        self.packed.append(PackedBuffers(recipe, numbers, tuple(places)))


class PacksOfFile:
    """The packed weights of a file, valid for weights unchanged since the load.

    `storage` is the mapped file as bytes, where the packed weights begin at `base`.
    """

    def __init__(
        self,
        packed: Sequence[PackedBuffers],
        weights: Sequence[torch.Tensor],
        storage: torch.Tensor,
        base: int,
    ) -> None:
        self._weights = weights
        self._version = version = version_of.get()
        self._versions = {id(w): version(w) for w in weights} if version else {}
        self._storage, self._base = storage, base
        self._places = {
            (entry.recipe, tuple(id(weights[n]) for n in entry.sources)): entry.places
            for entry in packed
        }

    def find(self, recipe: str, sources: Sequence[torch.Tensor]) -> Sequence[torch.Tensor] | None:
        """Return the packed weights for these sources, see runtime/weights/packing.py."""
        version = self._version
        if version is None or any(self._versions.get(id(s)) != version(s) for s in sources):
            return None
        places = self._places.get((recipe, tuple(id(source) for source in sources)))
        if places is None:
            return None
        return [self._storage[self._base + o : self._base + o + size] for o, size in places]

    def keep(
        self, recipe: str, sources: Sequence[torch.Tensor], packed: Sequence[torch.Tensor]
    ) -> None:
        """Do nothing, as the file is not written."""


def bind_weights(program: Program, spec: CallSpec, tensors: Sequence[torch.Tensor]) -> None:
    """Pack now those tensors of its artifact that a program packs."""
    if program.engine.parameters is not None:
        paths = [source.path for source in spec.inputs]
        program.engine.parameters.bind(
            [tensors[path[0][1]] if path[0][0] == "tensor" else None for path in paths]
        )

"""Packed weights in an artifact: packed when it is compiled, mapped when it is loaded."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelmill.artifact.manifest import CallSpec, Packed
from kernelmill.plan.arena import ALIGNMENT
from kernelmill.runtime.program import Program
from kernelmill.runtime.weights.contents import memory_of
from kernelmill.torch_internals.tensors import version_of


class PackCollector:
    """A record of the packing that a program does. `weights` are its long-lived arguments."""

    def __init__(self, weights: Sequence[torch.Tensor]) -> None:
        self._numbers = {id(weight): number for number, weight in enumerate(weights)}
        self.packed: list[Packed] = []
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
        self.packed.append(Packed(recipe, numbers, tuple(places)))


class PacksOfFile:
    """The packed weights of a file, valid for weights unchanged since the load.

    `storage` is the mapped file as bytes, where the packed weights begin at `base`.
    """

    def __init__(
        self,
        packed: Sequence[Packed],
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

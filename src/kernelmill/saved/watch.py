"""Whether what a bound program read outside of its arguments is still the same, asked at each call.

What was read is a value under a key of a dict (attributes, globals) or list. That it is still the
same object costs some 40 ns to see; only when one is not, its fingerprint is taken again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import getitem, is_
from typing import Any

import torch

from kernelmill.saved.paths import Path, Roots, step_into
from kernelmill.saved.reads import Read

Place = tuple[Any, Any]
"""A dict or list, and the key or index in it."""


class Watch:
    """Remembers where things are; `unchanged()` looks at all of them."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._seen: set[tuple[int, Any]] = set()
        self._places: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        self._sized: dict[int, tuple[Any, int]] = {}

    def add_read(self, read: Read) -> None:
        """Watch all that a read went through, and what it found."""
        value = self._walk(read.path)
        if read.kind in ("absent", "has") and hasattr(value, "__dict__"):
            value = vars(value)
        if isinstance(value, (dict, list, set)):
            self._sized[id(value)] = (value, len(value))
        if read.other and read.other[0][0] != "argument":
            self._walk(read.other)

    def add_input(self, path: Path) -> Place | None:
        """Watch the way to a tensor, and say where it is itself; None for a place of no kind that
        has a key."""
        owner = self._walk(path[:-1]) if len(path) > 1 else None
        return place_of(owner, path[-1]) if len(path) > 1 else self._root_place(path)

    def _root_place(self, path: Path) -> Place | None:
        kind, *names = path[0]
        if kind == "global":
            module, name = names
            return vars(sys.modules[module]), name
        return (self._roots.free, names[0]) if kind == "free" else None

    def _walk(self, path: Path) -> Any:
        value = self._roots.find(path[0])
        root = self._root_place(path) if path[0][0] == "global" else None
        if root is not None:
            self._add(root, value)
        for step in path[1:]:
            inner = step_into(value, step)
            place = place_of(value, step)
            if place is not None and not isinstance(inner, torch.Tensor):
                self._add(place, inner)
            value = inner
        return value

    def _add(self, place: Place, value: Any) -> None:
        owner, key = place
        if (id(owner), key) not in self._seen:
            self._seen.add((id(owner), key))
            for column, entry in zip(self._places, (owner, key, value), strict=True):
                column.append(entry)

    def unchanged(self) -> bool:
        """Whether everything is where it was."""
        owners, keys, values = self._places
        try:
            if not all(map(is_, map(getitem, owners, keys), values)):
                return False
        except (KeyError, IndexError):
            return False
        return all(len(container) == size for container, size in self._sized.values())


def place_of(owner: Any, step: Sequence[Any]) -> Place | None:
    """Where the value of a step is kept, if it is under a key."""
    kind, *names = step
    if kind == "item" and isinstance(owner, (dict, list, tuple)):
        return owner, names[0]
    if kind == "field":
        return vars(owner), names[0]
    if kind != "attribute" or not hasattr(owner, "__dict__"):
        return None
    spaces = [vars(owner)]
    if isinstance(owner, torch.nn.Module):
        spaces += [owner._parameters, owner._buffers, owner._modules]
    return next(((space, names[0]) for space in spaces if names[0] in space), None)

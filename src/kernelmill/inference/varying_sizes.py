"""Choice of the sizes that a trace has as symbols: those in which a call differs from earlier ones.

It is torch.compile's rule for `dynamic=None`, but earlier calls are known from the existing
programs, on disk too: a process that has loaded a program for one size next makes the one for all
sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from kernelmill.artifact.guards import ArgumentCode, found_in
from kernelmill.artifact.manifest import Manifest
from kernelmill.artifact.paths import Path, Roots, find_at, follow, text_of
from kernelmill.artifact.target import Target, Values
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import to_torch
from kernelmill.inference.dim_gears import set_dim_gears
from kernelmill.plan.ir import Plan, TensorInput
from kernelmill.torch_internals.dynamo import marks

_INTEGER = "int "
"""Prefix of the text of a guard on an integer."""


@dataclass(frozen=True)
class Varying:
    """The differences of a call from earlier ones: `dims` of tensors, by their paths and numbers,
    and integers."""

    dims: frozenset[tuple[Path, int]] = frozenset()
    integers: frozenset[Path] = frozenset()

    @classmethod
    def of(
        cls, programs: Iterable[tuple[Manifest, Plan]], target: Target, values: Values
    ) -> Varying:
        """Return the differences of a call with these values from each program for arguments that
        differ only in sizes, and all symbols of these programs."""
        given = dict(zip(target.binder.names, values, strict=True))
        roots, found = Roots(target.owner, given, target.cells), cls()
        for manifest, plan in programs:
            one = _differing(manifest, plan, roots)
            if one is not None:
                found |= one
        return found

    def __or__(self, other: Varying) -> Varying:
        return Varying(self.dims | other.dims, self.integers | other.integers)

    @contextmanager
    def marked(self, target: Target, values: Values) -> Generator[None]:
        """Let Dynamo make symbols of these sizes."""
        from torch.compiler import config

        given, functions = dict(zip(target.binder.names, values, strict=True)), marks.get()
        roots = Roots(target.owner, given, target.cells)
        names = [name for path in self.integers for name in _names_in_trace(path, target)]
        known = [config.dynamic_sources] if config.dynamic_sources else []
        dims = () if functions is None else sorted(self.dims)
        tensors = [(follow(path, roots), dim) for path, dim in dims]
        marking = [(t, partial(functions.maybe, t, d)) for t, d in tensors if functions]
        settings: Any = config
        with _marked_inside(marking), settings.patch(dynamic_sources=",".join((*known, *names))):
            yield


@contextmanager
def with_gears(
    gears: Mapping[str, Mapping[int, Sequence[int]]], arguments: Mapping[str, Any]
) -> Generator[None]:
    """Give tensors among the arguments the gears of their names."""
    marking = [
        (value, partial(set_dim_gears, value, {dim: [*sizes] for dim, sizes in dims.items()}))
        for name, dims in gears.items()
        if isinstance(value := arguments.get(name), torch.Tensor)
    ]
    with _marked_inside(marking):
        yield


@contextmanager
def _marked_inside(
    marking: Iterable[tuple[torch.Tensor, Callable[[], None]]],
) -> Generator[None]:
    """Mark tensors, and remove marks that are new at the end."""
    added: list[tuple[dict[str, Any], set[str]]] = []
    try:
        for tensor, mark in marking:
            before = set(vars(tensor))
            mark()
            added.append((vars(tensor), set(vars(tensor)) - before))
        yield
    finally:
        for space, names in added:
            for name in names:
                space.pop(name, None)


def _differing(manifest: Manifest, plan: Plan, roots: Roots) -> Varying | None:
    """Return the differences from a program; None where it is not for arguments like these."""
    dims: set[tuple[Path, int]] = set()
    integers: set[Path] = set()
    texts = ArgumentCode(manifest.guards.names, manifest.guards.whole)
    for guard in manifest.spec.checks:
        value = find_at(guard.path, roots)
        if guard.kind != "value" or found_in(guard, value, texts) == guard.found:
            continue
        if type(value) is not int or not guard.found.startswith(_INTEGER):
            return None
        integers.add(guard.path)
    for source, entry in zip(manifest.spec.inputs, plan.inputs, strict=True):
        if source.axis >= 0 or source.path[0][0] == "tensor":
            continue
        value = find_at(source.path, roots)
        if not isinstance(entry, TensorInput):
            integers.add(source.path)
        elif not isinstance(value, torch.Tensor) or not _is_alike(value, entry):
            return None
        else:
            others = [n for n, d in enumerate(entry.shape) if d != value.shape[n]]
            if others and not source.own:
                return None
            dims.update((source.path, number) for number in others)
    return Varying(frozenset(dims), frozenset(integers))


def _is_alike(value: torch.Tensor, entry: TensorInput) -> bool:
    return value.dim() == len(entry.shape) and value.dtype == to_torch(entry.dtype)


def _names_in_trace(path: Path, target: Target) -> Sequence[str]:
    """Return the names that Dynamo may have for an argument, which wrappers may rename."""
    name = path[0][1]
    last = text_of(path).removeprefix(name)
    number = target.binder.names.index(name)
    return [f"L[{name!r}]{last}", f"L['args'][{number}]{last}", f"L['kwargs'][{name!r}]{last}"]

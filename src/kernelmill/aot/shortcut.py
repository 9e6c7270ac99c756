"""The quick way into a compiled file's program (artifact/shortcut.py), for a file's manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelmill.aot.manifest import Manifest
from kernelmill.artifact.paths import Path, Tree
from kernelmill.artifact.reads import Read
from kernelmill.artifact.shortcut import Shortcut, shortcut_of
from kernelmill.runtime.program import Program
from kernelmill.runtime.quick import Build


@dataclass(frozen=True)
class _Layout:
    """What the shortcut asks of a manifest; see artifact/manifest.py."""

    parameters: tuple[str, ...]
    inputs: tuple[Any, ...]
    input_places: tuple[int, ...]
    reads: tuple[Read, ...]
    tree: Tree


def quick_way(manifest: Manifest, program: Program, build: Build) -> Shortcut | None:
    """The shortcut into a file's program; None when its arguments are held in other containers
    than lists, tuples and dicts, or for what `shortcut_of` names."""
    layout = _layout(manifest)
    found = None if layout is None else shortcut_of(layout, program, build)
    if found is not None:
        # Nothing outside of the arguments can change: weights are cells of the program's own.
        found.watch(())
    return found


def _layout(manifest: Manifest) -> _Layout | None:
    tree = Tree()
    found = [
        entry
        for parameter in manifest.parameters
        for entry in _entries(parameter.shape, (("argument", parameter.name),))
    ]
    if any(kind == "other" for kind, _, _ in found):
        return None
    leaves = {number: path for kind, path, number in found if kind == "leaf"}
    reads = [Read(kind, path) for kind, path, _ in found if kind != "leaf"]
    kinds = {"integer": "class", "constant": "value"}
    reads += [
        Read(kinds[leaf.kind], leaves[number])
        for number, leaf in enumerate(manifest.leaves)
        if leaf.kind in kinds
    ]
    inputs = [_input(entry, leaves) for entry in manifest.inputs]
    if any(entry is None for entry in inputs):
        return None
    paths = [entry[1] if entry[0] == "size" else entry for entry in inputs if entry is not None]
    return _Layout(
        tuple(parameter.name for parameter in manifest.parameters),
        tuple(inputs),
        tuple(map(tree.number, paths)),
        tuple(Read(r.kind, r.path, place=tree.number(r.path)) for r in reads),
        tree,
    )


def _entries(shape: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Path, int]]:
    """What there is to look at in an argument: leaves with their number, and kinds of reads."""
    if "result" in shape:
        yield "leaf", path, shape["result"]
        return
    if "constant" in shape:
        yield "value", path, -1
        return
    if "dict" in shape:
        parts: Sequence[tuple[Any, Any]] = shape["dict"]
    elif "list" in shape or "tuple" in shape:
        parts = list(enumerate(shape.get("list") or shape.get("tuple") or ()))
    else:
        yield "other", path, -1
        return
    yield "shape", path, -1
    for key, part in parts:
        yield from _entries(part, (*path, ("item", key)))


def _input(entry: Sequence[Any], leaves: Mapping[int, Path]) -> Any:
    """An argument of the program as a path, or ("size", PATH, AXIS); None when it is neither."""
    kind, number, *size = entry
    if kind == "weight":
        return (("weight", number),)
    if kind == "leaf":
        return leaves[number]
    axis, times, plus = size
    return ("size", leaves[number], axis) if (times, plus) == (1, 0) else None

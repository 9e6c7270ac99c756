"""Dynamo's guards as reads: what a trace depended on, in a form that can be kept.

Which kinds of guards are understood, and as what, is in the table of artifact/guard_kinds.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import combinations
from typing import Any, cast

import torch

from kernelmill.artifact.bytecode import WITH_GLOBAL, Compared, is_users
from kernelmill.artifact.fingerprint import is_data, is_told_apart, name_of
from kernelmill.artifact.guard_kinds import ELSEWHERE, KINDS, WHOLE
from kernelmill.artifact.guards import noted
from kernelmill.artifact.layouts import LAYOUT
from kernelmill.artifact.manifest import Guard
from kernelmill.artifact.paths import MissingPath, Path, Roots, follow, is_outside
from kernelmill.backend.layouts import Layouts
from kernelmill.backend.sources import SourceReader, is_known_by_version
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.dynamo import asked_of


def reads_of(
    guards: Iterable[Any],
    reader: SourceReader,
    roots: Roots,
    names: frozenset[str],
    layouts: Layouts,
) -> tuple[Guard, ...]:
    """The reads behind Dynamo's guards, with what is found now. Tensors that are inputs of the
    program are checked with these, and need none.

    UnsupportedError names what cannot be kept.
    """
    kinds = {name: kind for kind, row in KINDS.items() for name in row.dynamo}
    found: dict[Guard, Guard] = {}
    for guard in guards:
        what = guard.create_fn_name()
        if what in ELSEWHERE:
            continue
        if what not in kinds:
            raise UnsupportedError(f"it depends on {guard.name} by a guard {what}")
        try:
            if kinds[what] == LAYOUT:
                found |= {each: noted(each, roots) for each in layouts.guards(guard, reader)}
                continue
            if reader.is_of_call(guard.originating_source):
                continue
            read = _read(guard, what, kinds[what], reader, roots)
            if all(map(is_known_by_version, filter(None, (read.path, read.other)))):
                continue
            found[read] = noted(read, roots, names)
        except MissingPath as gone:
            raise UnsupportedError(f"it reads {gone}, which no name finds again") from gone
    found |= {each: noted(each, roots, names) for each in layouts.integers(reader)}
    return tuple(found.values())


def _read(guard: Any, what: str, kind: str, reader: SourceReader, roots: Roots) -> Guard:
    """The read that stands for all that a guard compares; not yet what it finds."""
    parameter = KINDS[kind].about
    asked = asked_of(guard, parameter) if parameter else (guard.originating_source, "")
    if asked is None:
        raise UnsupportedError(f"it depends on {guard.name} ({what})")
    source, about = asked
    path, whole = reader.path(source), WHOLE.get(what, is_told_apart if kind == "value" else None)
    if kind == "same":
        read = Guard(kind, path, other=reader.path(about))
        if read.of_argument != (read.other[0][0] == "argument"):
            raise UnsupportedError(f"an argument is what it reads elsewhere too ({guard.name})")
        return read
    if not isinstance(about, str):
        # All keys are compared: a file has only text to say which is meant. Of a dict not what it
        # holds under them, which is read by itself.
        kind = "shape" if isinstance(follow(path, roots), dict) else "value"
        about, whole = "", _has_data_as_keys
    if whole is not None and not whole(value := follow(path, roots)):
        raise UnsupportedError(
            f"it depends on {guard.name} ({what}), which is a {name_of(type(value))}"
        )
    return Guard(kind, path, name=about)


_MOST_PAIRS = 256
_BOTH = 2


def identities(
    compared: Compared, inputs: Iterable[Path], reads: Iterable[Guard], roots: Roots
) -> list[Guard]:
    """That values are one object, or two, as they were in the trace, where its code compares some
    by identity: Dynamo says nothing of what is two.

    UnsupportedError where an argument may be compared with what is no argument, or there are too
    many.
    """
    if not compared:
        return []
    seen = {read.path: follow(read.path, roots) for read in reads}
    found = {path: value for path, value in seen.items() if _is_mark(value)}
    tensors = {path: value for path in inputs if _is_tensor(value := follow(path, roots))}
    tensors |= {path: value for path, value in seen.items() if _is_tensor(value)}
    names = {path[-1][-1] for path in tensors}
    sides = [sides for sides in compared - {WITH_GLOBAL} if names.issuperset(sides)]
    if all(len(names) == _BOTH for names in sides):
        named = {name for names in sides for name in names}
        found |= {path: value for path, value in tensors.items() if path[-1][-1] in named}
    else:
        found |= tensors
        given = {(("argument", name),): value for name, value in roots.arguments.items()}
        found |= {path: value for path, value in given.items() if not is_data(value)}
    outside = {path for path in found if path[0][0] != "argument"}
    own = found.keys() - outside
    for kind in (_is_tensor, _is_mark):
        if all(any(kind(found[path]) for path in paths) for paths in (own, outside)):
            raise UnsupportedError("it compares by identity, and not arguments alone")
    marks = [path for path in outside if _is_mark(found[path])]
    pairs = [pair for paths in (own, marks) for pair in combinations(sorted(paths, key=repr), 2)]
    if len(pairs) > _MOST_PAIRS:
        raise UnsupportedError("it compares by identity, and there is much that it may compare")
    return [Guard("same", path, other=other) for path, other in pairs]


def one_or_two(compared: Compared, reads: Iterable[Guard], roots: Roots) -> list[Guard]:
    """That objects outside of arguments, of which code compares two attributes with each other, are
    one or two as they were in the trace."""
    paths = dict.fromkeys(read.path for read in reads if is_outside(read.path))
    found = {(path[:-1], path[-1][-1]): path for path in paths if _is_object(follow(path, roots))}
    pairs = [
        (path, found[before, second])
        for (before, name), path in found.items()
        for first, second in compared
        if first == name and (before, second) in found
    ]
    return [Guard("same", path, other=other) for path, other in pairs]


def attributes_of(reads: Iterable[Guard], roots: Roots) -> list[Guard]:
    """Which attributes the objects of a user's classes have, where a user's code looks into the
    `__dict__` of any."""
    owners = {read.path: follow(read.path, roots) for read in reads if read.kind == "class"}
    return [
        Guard("keys", (*path, ("attribute", "__dict__")))
        for path, value in owners.items()
        if hasattr(value, "__dict__") and _is_of_user(type(value))
    ]


def _is_of_user(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and is_users(file)


def _is_object(value: Any) -> bool:
    return isinstance(value, (dict, list, set)) or not (is_data(value) or _is_tensor(value))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_mark(value: Any) -> bool:
    return type(value) is object


def _has_data_as_keys(value: Any) -> bool:
    kinds = (dict, set, frozenset)
    return isinstance(value, kinds) and all(is_data(key, 1) for key in cast(Iterable[Any], value))

"""Code that functions may run without a trace of it: AOTAutograd runs decompositions, and the
functions that Dynamo's graph calls, unseen by Dynamo.

All functions that their names lead to are taken, called or not: an entry is then recompiled too
often, but is never stale.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch

from kernelmill.artifact.bytecode import (
    globals_in,
    is_compared,
    is_library,
    is_torchs,
    known_by_version,
    names_in,
)
from kernelmill.artifact.fingerprint import cells_of, finds_attributes, is_atom, is_data
from kernelmill.artifact.paths import Path
from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals.tracing import all_nodes


@dataclass(frozen=True)
class Reached:
    """The code, and the paths of the containers of data among the globals that it names; numbers
    and texts are compared with the code."""

    codes: tuple[types.CodeType, ...]
    data: tuple[Path, ...]


def reached_by_calls(gm: torch.fx.GraphModule, names: frozenset[str]) -> Reached:
    """Return the code run by the functions that a graph of Dynamo's calls, torch's code too, and by
    the methods of tensors that this code or the traced one, with these names, may call."""
    called = [node.target for node in all_nodes(gm) if callable(node.target)]
    found = reached_from(called, _is_replaced)
    names |= names_in(found.codes)
    methods = [
        value
        for name, value in vars(torch.Tensor).items()
        if name in names or (finds_attributes(name) and not _is_torchs(value))
    ]
    return reached_from((*called, *methods), _is_replaced)


def _is_torchs(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return code is None or known_by_version(code.co_filename)


def _is_replaced(file: str) -> bool:
    """Return whether code of a file is to be compared: not in Python's library."""
    return is_compared(file) and (is_torchs(file) or not is_library(file))


def _is_others(file: str) -> bool:
    return not known_by_version(file)


def reached_from(functions: Iterable[Any], compared: Callable[[str], bool] = _is_others) -> Reached:
    """Return the code that these functions may run, as far as code of their files is `compared`."""
    codes: dict[types.CodeType, None] = {}
    data: dict[Path, None] = {}
    waiting: list[Any] = [*functions]
    known: dict[int, Any] = {}  # held, so that no other object gets the same number
    while waiting:
        value = waiting.pop()
        if id(value) in known:
            continue
        known[id(value)] = value
        if not isinstance(value, types.FunctionType):
            waiting += _functions_in(value)
            continue
        code = value.__code__
        if code in codes or not compared(code.co_filename):
            continue
        codes[code] = None
        waiting += cells_of(value).values()
        for path, found in _named(value, compared):
            waiting.append(found)
            if not is_atom(found) and isinstance(found, _CONTAINERS) and is_data(found):
                data[path] = None
    return Reached(tuple(codes), tuple(data))


_CONTAINERS = (dict, list, tuple, set, frozenset)


def _named(
    function: types.FunctionType, compared: Callable[[str], bool]
) -> Iterator[tuple[Path, Any]]:
    """Yield the globals that a function's code names, and such members of modules among them."""
    space, names = function.__globals__, sorted(globals_in(function.__code__))
    for name in names:
        value = space.get(name)
        yield (("global", space.get("__name__"), name),), value
        file = getattr(value, "__file__", None)
        if isinstance(value, types.ModuleType) and file is not None and compared(file):
            for inner in names:
                yield (("global", value.__name__, inner),), vars(value).get(inner)


def _functions_in(value: Any) -> list[Any]:
    """Return the Python functions that a call of a value may run."""
    if isinstance(value, (types.MethodType, staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, property):
        return [value.fget]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return [*value]
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__.partition(".")[0] in ("builtins", "torch"):
        return []
    inner = [] if kind is value else [getattr(value, "__wrapped__", None)]
    members = (each for part in kind.__mro__ for each in vars(part).values())
    return inner + [each for each in members if isinstance(each, _MEMBERS)]


_MEMBERS = (types.FunctionType, staticmethod, classmethod, property)

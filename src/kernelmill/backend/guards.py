"""Dynamo's guards as reads: what a trace depended on, in a form that can be kept.

`GUARDS` is the one table of the kinds of guards that are understood. A method whose trace has
another one is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from kernelmill.artifact.fingerprint import is_data, is_process_group, name_of
from kernelmill.artifact.guards import found_now
from kernelmill.artifact.manifest import Guard
from kernelmill.artifact.paths import MissingPath, Roots, follow
from kernelmill.backend.sources import SourceReader
from kernelmill.core.errors import UnsupportedError

_ELSEWHERE = ""
"""Tensors are the native entry's to check, settings are compared as a whole."""

GUARDS = {
    "EQUALS_MATCH": "data",
    "CONSTANT_MATCH": "data",
    "BOOL_MATCH": "value",
    "NONE_MATCH": "value",
    "ID_MATCH": "value",
    "FUNCTION_MATCH": "value",
    "CLASS_MATCH": "value",
    "MODULE_MATCH": "value",
    "CLOSURE_MATCH": "value",
    "BUILTIN_MATCH": "value",
    "OPAQUE_OBJ_GUARD_FN_MATCH": "group",
    "TYPE_MATCH": "class",
    "CONSTANT_SUBCLASS_MATCH": "class",
    "FAKE_SCRIPT_TYPE_MATCH": "class",
    "NN_MODULE": "class",
    "NOT_NONE_MATCH": "class",
    "NOT_PRESENT_IN_GENERIC_DICT": "absent",
    "HASATTR": "has",
    "DICT_CONTAINS": "contains",
    "DICT_NOT_CONTAINS": "contains",
    "SET_CONTAINS": "contains",
    "SET_NOT_CONTAINS": "contains",
    "SEQUENCE_LENGTH": "shape",
    "MAPPING_KEYS_CHECK": "shape",
    "DICT_KEYS_MATCH": "shape",
    "EMPTY_NN_MODULE_HOOKS_DICT": "shape",
    "DUPLICATE_INPUT": "same",
    "SHAPE_ENV": _ELSEWHERE,
    "TENSOR_MATCH": _ELSEWHERE,
    "DISPATCH_KEY_SET_MATCH": _ELSEWHERE,
    "WEAKREF_ALIVE": _ELSEWHERE,
    "GRAD_MODE": _ELSEWHERE,
    "GLOBAL_STATE": _ELSEWHERE,
    "TORCH_FUNCTION_STATE": _ELSEWHERE,
    "DETERMINISTIC_ALGORITHMS": _ELSEWHERE,
    "DEFAULT_DEVICE": _ELSEWHERE,
    "AUTOGRAD_SAVED_TENSORS_HOOKS": _ELSEWHERE,
    "FSDP_TRAINING_STATE": _ELSEWHERE,
    "DUAL_LEVEL": _ELSEWHERE,
    "FUNCTORCH_STACK_MATCH": _ELSEWHERE,
}
"""The kind of read that stands for each kind of guard ("data": a value of which all is compared,
"group": one of torch.distributed's process groups, which have names, "keys": of a dict or set)."""

_NAMED = ("absent", "has", "contains")


def reads_of(
    guards: Iterable[Any], reader: SourceReader, roots: Roots, names: frozenset[str]
) -> tuple[Guard, ...]:
    """The reads behind Dynamo's guards, with what is found now.

    UnsupportedError names what cannot be kept.
    """
    found: dict[tuple[Any, ...], Guard] = {}
    for guard in guards:
        what = guard.create_fn_name()
        if what not in GUARDS:
            raise UnsupportedError(f"it depends on {guard.name} by a guard {what}")
        if GUARDS[what] == _ELSEWHERE:
            continue
        read = _read(GUARDS[what], guard, reader)
        try:
            read = _checked(read, what, guard, roots)
            read = replace(read, found=found_now(read, roots, names))
        except MissingPath as gone:
            raise UnsupportedError(f"it reads {gone}, which no name finds again") from gone
        found[read.kind, read.path, read.name, read.other] = read
    return tuple(found.values())


def _checked(read: Guard, what: str, guard: Any, roots: Roots) -> Guard:
    """The read, if it stands for all that the guard compares."""
    if read.kind == "same":
        if read.of_argument != (read.other[0][0] == "argument"):
            raise UnsupportedError(f"an argument is what it reads elsewhere too ({guard.name})")
        return read
    known = _WHOLE.get(read.kind)
    if known is None:
        return read
    value = follow(read.path, roots)
    if not known(value):
        kind = name_of(type(value))
        raise UnsupportedError(f"it depends on {guard.name} ({what}), which is a {kind}")
    # Of a dict its keys are meant: its values are read by themselves.
    keys_alone = read.kind == "keys" and isinstance(value, dict)
    return replace(read, kind="shape" if keys_alone else "value")


def _has_data_as_keys(value: Any) -> bool:
    kinds = (dict, set, frozenset)
    return isinstance(value, kinds) and all(is_data(key, 1) for key in cast(Iterable[Any], value))


_WHOLE = {"data": is_data, "group": is_process_group, "keys": _has_data_as_keys}
"""What a value has to be for its fingerprint to stand for all that such a guard compares."""


def _read(kind: str, guard: Any, reader: SourceReader) -> Guard:
    path = reader.path(guard.originating_source)
    if kind == "same":
        return Guard(kind, path, other=reader.path(_parameter(guard, "source_b")))
    if kind in _NAMED:
        name = _parameter(guard, "attr" if kind != "contains" else "key")
        if not isinstance(name, str):
            # All keys are compared: a file has only text to say which is meant.
            return Guard("keys", path)
        return Guard(kind, path, name=name)
    return Guard(kind, path)


def _parameter(guard: Any, name: str) -> Any:
    create: Any = guard.create_fn
    if not isinstance(create, partial):
        raise UnsupportedError(f"it depends on {guard.name} ({guard.create_fn_name()})")
    return create.keywords.get(name, create.args[0] if create.args else None)

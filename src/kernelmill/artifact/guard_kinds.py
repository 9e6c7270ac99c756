"""The kinds of guards: `KINDS` is the one table of what each finds in a value, how that is known
the next time, how it is watched natively outside of arguments, and which of Dynamo's guards it
stands for. In arguments unpacker.py has it compared. A method whose trace has another of Dynamo's
guards is not kept."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from operator import eq
from typing import Any, cast

import torch

from kernelmill.artifact.fingerprint import (
    class_text,
    fingerprint,
    is_atom,
    is_data,
    is_process_group,
    keys_of,
    name_of,
    shape_of,
    signs_of_keys,
)
from kernelmill.artifact.guard_records import CLASS, KEYS, SIZE, SPACE, GuardRecords, Property
from kernelmill.artifact.layouts import (
    FLAGS,
    LAYOUT,
    STRIDES,
    flags_text,
    layout_text,
    sizes_text,
    strides_text,
)
from kernelmill.artifact.layouts import SIZE as SAME_SIZE
from kernelmill.artifact.manifest import Guard
from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals.modules import tables_of
from kernelmill.torch_internals.objects import dict_of

Texts = Callable[[type], str]
"""Classes as text."""


# ---- outside of arguments -------------------------------------------------------------------


_UNCHANGING = (tuple, frozenset, str, bytes, range, slice, types.FunctionType, type)
"""Whose elements and class stay what they are."""


def _watch_container(guard: Guard, value: Any, records: GuardRecords) -> None:
    proxy = isinstance(value, types.MappingProxyType)
    space = dict_of(cast("types.MappingProxyType[Any, Any]", value)) if proxy else value
    if isinstance(space, (dict, list, set)):
        records.add_property(space, SIZE)
    if isinstance(space, dict):
        records.add_property(space, KEYS)
    elif not isinstance(space, (list, *_UNCHANGING)):
        _watch_text(guard, value, records)


def _watch_text(guard: Guard, value: Any, records: GuardRecords) -> None:
    """What changes unseen is looked at in each call."""
    find, texts = partial(KINDS[guard.kind].text, guard), cache(class_text)
    records.add_property(value, Property(lambda value: find(value, None, texts), eq, None))


def _watch_nothing(guard: Guard, value: Any, records: GuardRecords) -> None:
    """The watch looks by itself where both values of two places are kept; and at the layout of a
    tensor, in each call and along its path, since where it is kept may change, too."""


def _watch_data(guard: Guard, value: Any, records: GuardRecords) -> None:
    if isinstance(value, (dict, list, set)):
        _watch_text(guard, value, records)


def _watch_class(guard: Guard, value: Any, records: GuardRecords) -> None:
    if guard.kind == "class":
        records.add_class(type(value))
    if hasattr(value, "__dict__"):
        records.add_property(value, CLASS)
    elif isinstance(value, (dict, list, set)):
        _watch_container(guard, value, records)


def _watch_name(guard: Guard, value: Any, records: GuardRecords) -> None:
    space = value if guard.kind == "contains" else getattr(value, "__dict__", None)
    if not isinstance(space, (dict, types.MappingProxyType)):
        _watch_container(guard, value, records)
        return
    records.look_up(space, guard.name)
    if guard.kind != "contains" and not isinstance(value, type):
        records.find(type(value), guard.name)
    if (guard.kind, guard.found) == ("absent", "True") and not isinstance(value, type):
        records.add_property(value, SPACE)


def _watch_has(guard: Guard, value: Any, records: GuardRecords) -> None:
    if isinstance(value, type):
        records.find(value, guard.name)
        return
    records.add_class(type(value))
    if isinstance(value, torch.nn.Module):
        for table in tables_of.get() or ():
            records.look_up(getattr(value, table), guard.name)
    _watch_name(guard, value, records)


# ---- the table ------------------------------------------------------------------------------


def is_lasting(value: Any) -> bool:
    """Whether its text is the same for good: data, a class or a function."""
    kinds = (type, types.FunctionType, types.BuiltinFunctionType)
    return is_atom(value) or isinstance(value, kinds)


def _layout(value: Any) -> Any:
    if isinstance(value, dict):
        return "layout", type(value), signs_of_keys(cast("dict[Any, Any]", value))
    if isinstance(value, types.MappingProxyType):
        return object()
    return "layout", type(value), len(value) if hasattr(value, "__len__") else 0


@dataclass(frozen=True)
class GuardKind:
    """A kind of guard.

    text    what it finds in a value and that at its other path, with the texts of classes;
            TypeError for a value in which nothing of the kind can be
    sign    tells values apart without their text: by identity, or as a tuple of such signs
    lasts   whether the same text is found in the same object for good
    watch   have it noticed when another text may be found in a value outside of arguments
    dynamo  the guards of Dynamo's that it stands for, by their names
    about   the parameter of theirs that says what they ask for besides the value
    """

    text: Callable[[Guard, Any, Any, Texts], str]
    sign: Callable[[Any], Any] = lambda value: object()
    lasts: Callable[[Any], bool] = lambda value: False
    watch: Callable[[Guard, Any, GuardRecords], None] = _watch_text
    dynamo: Collection[str] = ()
    about: str = ""


KINDS: Mapping[str, GuardKind] = {
    # The whole value: data, or the name of a class or function.
    "value": GuardKind(
        lambda guard, value, other, texts: fingerprint(value),
        lambda value: value if is_lasting(value) else object(),
        is_lasting, _watch_data,
        ("BOOL_MATCH", "BUILTIN_MATCH", "CLASS_MATCH", "CLOSURE_MATCH", "CONSTANT_MATCH",
         "CONSTANT_SUBCLASS_MATCH", "EQUALS_MATCH", "FUNCTION_MATCH", "ID_MATCH", "MODULE_MATCH",
         "NONE_MATCH", "OPAQUE_OBJ_GUARD_FN_MATCH"),
    ),
    # Its class, with how that finds its methods.
    "class": GuardKind(
        lambda guard, value, other, texts: texts(type(value)),
        type, lambda value: True, _watch_class,
        ("FAKE_SCRIPT_TYPE_MATCH", "NN_MODULE", "NOT_NONE_MATCH", "TYPE_MATCH"),
    ),
    # How it, a class, finds its methods.
    "methods": GuardKind(
        lambda guard, value, other, texts: texts(value),
        watch=lambda guard, value, records: records.add_class(value),
    ),
    # The name of its class.
    "type": GuardKind(
        lambda guard, value, other, texts: name_of(type(value)),
        type, lambda value: True, _watch_class,
    ),
    # The class of a container, and its length or keys.
    "shape": GuardKind(
        lambda guard, value, other, texts: shape_of(value),
        _layout, watch=_watch_container,
        dynamo=("DICT_KEYS_MATCH", "EMPTY_NN_MODULE_HOOKS_DICT", "MAPPING_KEYS_CHECK",
                "SEQUENCE_LENGTH"),
    ),
    # The same with the keys in any order.
    "keys": GuardKind(
        lambda guard, value, other, texts: keys_of(value),
        _layout, watch=_watch_container,
    ),
    # The instance holds nothing of the guard's name.
    "absent": GuardKind(
        lambda guard, value, other, texts: str(guard.name not in getattr(value, "__dict__", {})),
        watch=_watch_name,
        dynamo=("NOT_PRESENT_IN_GENERIC_DICT",), about="attr",
    ),
    # Whether the guard's name is in it.
    "contains": GuardKind(
        lambda guard, value, other, texts: str(guard.name in value),
        watch=_watch_name,
        dynamo=("DICT_CONTAINS", "DICT_NOT_CONTAINS", "SET_CONTAINS", "SET_NOT_CONTAINS"),
        about="key",
    ),
    # Whether hasattr says so, for the guard's name.
    "has": GuardKind(
        lambda guard, value, other, texts: str(hasattr(value, guard.name)),
        watch=_watch_has, dynamo=("HASATTR",), about="attr",
    ),
    # The value at the guard's other path is the same object.
    "same": GuardKind(
        lambda guard, value, other, texts: str(value is other), watch=_watch_nothing,
        dynamo=("DUPLICATE_INPUT",), about="source_b",
    ),
    # The layout of a tensor that is no input of the program: those are the native entry's to check.
    LAYOUT: GuardKind(
        lambda guard, value, other, texts: layout_text(value, guard.name),
        watch=_watch_nothing, dynamo=("TENSOR_MATCH",),
    ),
    # One of its sizes is one of the tensor at the guard's other path.
    SAME_SIZE: GuardKind(
        lambda guard, value, other, texts: sizes_text(value, other, guard.name),
        watch=_watch_nothing,
    ),
    # Its strides, where the trace has asked for any.
    STRIDES: GuardKind(
        lambda guard, value, other, texts: strides_text(value, guard.name),
        watch=_watch_nothing,
    ),
    # The class of an input, and whether it requires grad, where the trace has asked for these.
    FLAGS: GuardKind(
        lambda guard, value, other, texts: flags_text(value),
        watch=_watch_nothing,
    ),
}  # fmt: skip
"""By their names in the manifest."""

WHOLE = {
    "CONSTANT_MATCH": is_data,
    "EQUALS_MATCH": is_data,
    "OPAQUE_OBJ_GUARD_FN_MATCH": is_process_group,
}
"""Guards of Dynamo's that compare all of a value: what it has to be for its text to say all."""

ELSEWHERE = frozenset(
    "AUTOGRAD_SAVED_TENSORS_HOOKS DEFAULT_DEVICE DETERMINISTIC_ALGORITHMS DISPATCH_KEY_SET_MATCH "
    "DUAL_LEVEL FSDP_TRAINING_STATE FUNCTORCH_STACK_MATCH GLOBAL_STATE GRAD_MODE SHAPE_ENV "
    "TORCH_FUNCTION_STATE WEAKREF_ALIVE".split()
)
"""Those that need no guard of ours: settings are compared as a whole."""

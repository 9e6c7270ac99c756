"""The kinds of guards of arguments. `KINDS` is the table of them: what each reads from a value, how
it compares that at a later call, and which of Dynamo's guards it stands for. unpacker.py compares
natively. A method whose trace has another of Dynamo's guards is not kept.

The native entry checks the program's inputs. Guards check other tensors whose dtype or sizes the
trace has read, and strides if the trace has read them. An entry takes copies of arguments with
other strides.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch

from kernelmill.artifact.fingerprint import (
    fingerprint,
    is_atom,
    is_code,
    is_data,
    is_process_group,
    keys_of,
    name_of,
    shape_of,
)
from kernelmill.artifact.manifest import Guard
from kernelmill.core.dataclass import dataclass

FREE_FROM = 2
"""Sizes from this on are alike where a dim is free: torch traces 0 and 1 for themselves."""

LAYOUT, SIZE, STRIDES, FLAGS, OBJECT = "tensor", "size", "strides", "flags", "object"
"""Kinds of guards. The name of the first has the free dims, that of the second two dims of equal
size, one of each tensor, that of the third the dims whose strides are compared, that of the last
the names of an object in plans. The fourth compares an input's class and requires_grad, if the
trace has read them."""


def layout_of(value: Any) -> tuple[Any, ...]:
    """Return all properties of a tensor except its contents. TypeError for another value."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(name_of(type(value)))
    strided = value.layout == torch.strided
    return (
        type(value), value.dtype, value.device, value.layout, value.requires_grad,
        value.is_conj(), value.is_neg(), value.shape, value.stride() if strided else (),
    )  # fmt: skip


def layout_text(value: Any, free: str) -> str:
    """Return the same as text. Of the dims `free` (numbers with spaces between) it only says that
    their sizes are not special. TypeError for a value that is not a tensor."""
    kind, dtype, device, layout, grad, conj, neg, shape, strides = layout_of(value)
    open_dims = set(map(int, free.split()))
    sizes = [
        f"{FREE_FROM}.." if n in open_dims and size >= FREE_FROM else str(size)
        for n, size in enumerate(shape)
    ]
    lies = "contiguous" if strides and value.is_contiguous() else str(strides)
    flags = [name for name, flag in (("grad", grad), ("conj", conj), ("neg", neg)) if flag]
    words = [name_of(kind), dtype, device, layout, f"[{', '.join(sizes)}]", lies, *flags]
    return " ".join(map(str, words))


def sizes_text(value: Any, other: Any, dims: str) -> str:
    """Compare a dim of one tensor with one of another. TypeError for other values."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        raise TypeError(name_of(type(value)))
    mine, its = map(int, dims.split())
    return str(mine < value.dim() and its < other.dim() and value.shape[mine] == other.shape[its])


def strides_text(value: Any, dims: str) -> str:
    """Return the strides of dims N. For N:M, return M if dim N is stored densely over dim M.
    TypeError for other values."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise TypeError(name_of(type(value)))
    words: list[str | int] = []
    shape, strides = value.shape, value.stride()
    for dim in dims.split():
        n, *inner = map(int, dim.split(":"))
        if max((n, *inner)) >= value.dim():
            raise TypeError(f"a tensor of {value.dim()} dims")
        dense = inner and strides[n] == shape[inner[0]] * strides[inner[0]]
        words.append(inner[0] if dense else str(strides[n]))
    return strides_found(words)


def strides_name(dims: Iterable[tuple[int, int]]) -> str:
    """Return the name of a guard of strides: a dim alone, or (dim, other) for a dim that is dense
    over the other; -1 for no other."""
    return " ".join(str(n) if inner < 0 else f"{n}:{inner}" for n, inner in dims)


def strides_found(strides: Iterable[str | int]) -> str:
    """Return the text for strides: numbers (as texts), or the dims that they are dense over."""
    words = [each if isinstance(each, str) else f"behind {each}" for each in strides]
    return f"strides {', '.join(words)}"


def flags_text(value: Any) -> str:
    """Return a tensor's class and requires_grad as text. TypeError for other values."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(name_of(type(value)))
    return f"{name_of(type(value))}{' grad' if value.requires_grad else ''}"


def object_text(value: Any) -> str:
    """Return an object that torch traces as a value as text. TypeError for another value."""
    if not hasattr(type(value), "__fx_repr__"):
        raise TypeError(name_of(type(value)))
    return f"{name_of(type(value))} {value.__fx_repr__()[0]}"


def is_about_layout(guard: Guard) -> bool:
    """Return whether the guard is about a tensor's layout, a size, strides or flags."""
    return guard.kind in (LAYOUT, SIZE, STRIDES, FLAGS)


Texts = Callable[[Any], str]
"""Classes and functions as text."""


def is_lasting(value: Any) -> bool:
    """Return whether the value's text is constant: that of data, or of code, which is watched."""
    kinds = (type, types.FunctionType, types.BuiltinFunctionType)
    return is_atom(value) or isinstance(value, kinds)


@dataclass(frozen=True)
class GuardKind:
    """A kind of guard.

    text    what it finds in a value and that at its other path, with the texts of classes;
            TypeError for a value in which nothing of the kind can be
    dynamo  the guards of Dynamo's that it stands for, by their names
    about   the parameter of theirs that says what they ask for besides the value
    """

    text: Callable[[Guard, Any, Any, Texts], str]
    dynamo: Collection[str] = ()
    about: str = ""


KINDS: Mapping[str, GuardKind] = {
    # The whole value: data, or the name of a class or function.
    "value": GuardKind(
        lambda guard, value, other, texts: (texts if is_code(value) else fingerprint)(value),
        ("BOOL_MATCH", "BUILTIN_MATCH", "CLASS_MATCH", "CLOSURE_MATCH", "CONSTANT_MATCH",
         "CONSTANT_SUBCLASS_MATCH", "EQUALS_MATCH", "FUNCTION_MATCH", "ID_MATCH", "MODULE_MATCH",
         "NONE_MATCH", "OPAQUE_OBJ_GUARD_FN_MATCH"),
    ),
    # Its class, with how that finds its methods.
    "class": GuardKind(
        lambda guard, value, other, texts: texts(type(value)),
        ("FAKE_SCRIPT_TYPE_MATCH", "NN_MODULE", "NOT_NONE_MATCH", "TYPE_MATCH"),
    ),
    # The name of its class.
    "type": GuardKind(lambda guard, value, other, texts: name_of(type(value))),
    # The class of a container, and its length or keys.
    "shape": GuardKind(
        lambda guard, value, other, texts: shape_of(value),
        dynamo=("DICT_KEYS_MATCH", "EMPTY_NN_MODULE_HOOKS_DICT", "MAPPING_KEYS_CHECK",
                "SEQUENCE_LENGTH"),
    ),
    # The same with the keys in any order.
    "keys": GuardKind(lambda guard, value, other, texts: keys_of(value)),
    # The instance holds nothing of the guard's name.
    "absent": GuardKind(
        lambda guard, value, other, texts: str(guard.name not in getattr(value, "__dict__", {})),
        dynamo=("NOT_PRESENT_IN_GENERIC_DICT",), about="attr",
    ),
    # Whether the guard's name is in it.
    "contains": GuardKind(
        lambda guard, value, other, texts: str(guard.name in value),
        dynamo=("DICT_CONTAINS", "DICT_NOT_CONTAINS", "SET_CONTAINS", "SET_NOT_CONTAINS"),
        about="key",
    ),
    # Whether hasattr says so, for the guard's name.
    "has": GuardKind(
        lambda guard, value, other, texts: str(hasattr(value, guard.name)),
        dynamo=("HASATTR",), about="attr",
    ),
    # The value at the guard's other path is the same object.
    "same": GuardKind(
        lambda guard, value, other, texts: str(value is other),
        dynamo=("DUPLICATE_INPUT",), about="source_b",
    ),
    # The layout of a tensor that is no input of the program: those are the native entry's to check.
    LAYOUT: GuardKind(
        lambda guard, value, other, texts: layout_text(value, guard.name), dynamo=("TENSOR_MATCH",),
    ),
    # One of its sizes is one of the tensor at the guard's other path.
    SIZE: GuardKind(lambda guard, value, other, texts: sizes_text(value, other, guard.name)),
    # Its strides, where the trace has asked for any.
    STRIDES: GuardKind(lambda guard, value, other, texts: strides_text(value, guard.name)),
    # The class of an input, and whether it requires grad, where the trace has asked for these.
    FLAGS: GuardKind(lambda guard, value, other, texts: flags_text(value)),
    # An object that an operator is given: its class, and how to make it.
    OBJECT: GuardKind(lambda guard, value, other, texts: object_text(value)),
}  # fmt: skip
"""The kinds of guards by their names in the manifest."""

WHOLE = {
    "CONSTANT_MATCH": is_data,
    "EQUALS_MATCH": is_data,
    "OPAQUE_OBJ_GUARD_FN_MATCH": is_process_group,
}
"""Guards of Dynamo's that compare a whole value, and the test whether its text is complete."""

ELSEWHERE = frozenset(
    "AUTOGRAD_SAVED_TENSORS_HOOKS DEFAULT_DEVICE DETERMINISTIC_ALGORITHMS DISPATCH_KEY_SET_MATCH "
    "DUAL_LEVEL FSDP_TRAINING_STATE FUNCTORCH_STACK_MATCH GLOBAL_STATE GRAD_MODE SHAPE_ENV "
    "TORCH_FUNCTION_STATE WEAKREF_ALIVE".split()
)
"""Guards of Dynamo's that need no own guard: settings are compared as a whole."""

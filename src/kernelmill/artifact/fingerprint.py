"""Fingerprints of values and code: text that is the same in every process with equal ones.

Code is its bytecode with its constants and names, so that comments, blank lines and line numbers do
not matter. Values are plain data, names of classes and functions, or only their class.
"""

from __future__ import annotations

import enum
import hashlib
import sys
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
import torch

from kernelmill.artifact.bytecode import is_tracers
from kernelmill.core.digest import DIGEST_BYTES, digest_of

_ATOMS = (type(None), bool, int, str, bytes, complex, torch.dtype, torch.device, torch.layout,
          torch.memory_format, type(Ellipsis))  # fmt: skip
_PLAIN_ATOMS = frozenset((*_ATOMS, float))
_PLAIN_NUMBERS_AND_TEXT: tuple[Any, ...] = (int, float, complex, str, bytes)
_WRITTEN_OUT = (range, slice, np.generic, torch.finfo, torch.iinfo, type(NotImplemented),
                torch.nn.attention.SDPBackend)  # fmt: skip
"""Other data described completely by `repr`."""
_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)


OPERATORS = type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor)
"""Classes of operators with overloads and of single overloads: their text is their name."""


def is_atom(value: object) -> bool:
    """Return whether a value is plain data without parts."""
    return isinstance(value, (*_ATOMS, float, enum.Enum))


def is_constant(value: Any) -> bool:
    """Return whether a value is immutable plain data, or a tuple of such data. Equal ones may be
    one object in one process and two in another."""
    if isinstance(value, (tuple, frozenset)):
        return all(map(is_constant, cast("Iterable[Any]", value)))
    return is_atom(value) or isinstance(value, _WRITTEN_OUT)


def is_data(value: Any, deep: int = 4) -> bool:
    """Return whether the fingerprint of a value describes all of it."""
    if is_atom(value) or isinstance(value, (*_WRITTEN_OUT, *_FUNCTIONS, type, types.CodeType)):
        return True
    if isinstance(value, dict):
        return deep > 0 and all(is_data(k, 1) and is_data(v, deep - 1) for k, v in value.items())
    parts = isinstance(value, (list, tuple, set, frozenset)) and deep > 0
    return parts and all(is_data(part, deep - 1) for part in value)


def is_told_apart(value: Any) -> bool:
    """Return whether the fingerprint tells a value from others of its class."""
    return is_data(value) or isinstance(value, (types.MethodType, partial)) or is_named(value)


def is_named(value: Any) -> bool:
    """Return whether a value is found again by its name: a module, an operator, a numpy ufunc, a
    process group."""
    known = isinstance(value, (types.ModuleType, *OPERATORS))
    return known or is_numpy_function(value) or is_process_group(value)


def is_numpy_function(value: Any) -> bool:
    """Return whether a value is one of numpy's own ufuncs, found in numpy by its name."""
    return isinstance(value, np.ufunc) and getattr(np, value.__name__, None) is value


def is_process_group(value: Any) -> bool:
    """Return whether a value is a process group of torch.distributed."""
    return torch.distributed.is_available() and isinstance(value, torch.distributed.ProcessGroup)


def name_of(value: Any) -> str:
    """Return module and qualified name of a class or function."""
    module = getattr(value, "__module__", None) or ""
    return f"{module}.{getattr(value, '__qualname__', type(value).__name__)}"


def fingerprint(value: Any, deep: int = 4) -> str:
    """Return text that changes when the value does. Objects that are no data are described by their
    class alone: values that a trace reads from them have paths and fingerprints of their own."""
    if type(value) in _PLAIN_ATOMS:
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, enum.Enum):
        # Flags may have no name, and another version of the class other values.
        name = f"{name_of(type(value))}.{value.name}"
        return f"{name} {_written(value)} = {fingerprint(value.value, max(deep - 1, 0))}"
    if isinstance(value, _PLAIN_NUMBERS_AND_TEXT):
        return f"{name_of(type(value))} {_written(value)}"
    if isinstance(value, (*_ATOMS, *_WRITTEN_OUT)):
        return f"{name_of(type(value))} {value!r}"
    if isinstance(value, types.CodeType):
        return f"code {code_digest(value)}"
    if isinstance(value, type):
        return f"class {name_of(value)}{_body_text(value)}{metaclass_text(type(value))}"
    if isinstance(value, types.MethodType) and deep:
        return f"method {fingerprint(value.__func__, deep - 1)} of {name_of(type(value.__self__))}"
    if isinstance(value, types.FunctionType) and deep:
        return f"function {name_of(value)} {function_digest(value, deep - 1)}"
    if isinstance(value, _FUNCTIONS):
        if isinstance(value, types.FunctionType) and not is_own(value):
            return f"function {name_of(value)} {code_digest(value.__code__)}"
        return f"function {name_of(value)}"
    if isinstance(value, OPERATORS):
        return f"operator {value}"
    if is_numpy_function(value):
        return f"numpy {value.__name__}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, partial) and deep:
        parts = (value.func, value.args, value.keywords)
        return f"partial {[fingerprint(part, deep - 1) for part in parts]}"
    if is_process_group(value):
        group: Any = value
        return f"process group {group.group_name}, rank {group.rank()} of {group.size()}"
    if isinstance(value, (torch.nn.Module, torch.Tensor)) or not deep:
        return name_of(type(value))
    return _container(value, deep)


def _written(value: Any) -> str:
    """Return the text of a number or string of a subclass, by the base class, as its own `repr` may
    leave out a difference; "" for other values."""
    kinds = (kind for kind in _PLAIN_NUMBERS_AND_TEXT if isinstance(value, kind))
    return next((kind.__repr__(value) for kind in kinds), "")


def _container(value: Any, deep: int) -> str:
    name = name_of(type(value))
    if isinstance(value, dict):
        items = (f"{fingerprint(k, 1)}: {fingerprint(v, deep - 1)}" for k, v in value.items())
        return f"{name} {{{', '.join(items)}}}"
    if isinstance(value, (list, tuple)):
        return f"{name} [{', '.join(fingerprint(part, deep - 1) for part in value)}]"
    if isinstance(value, (set, frozenset)):
        parts = [fingerprint(part, deep - 1) for part in value]
        # Numbers as loops find them; text has another order in each process.
        numbers = all(isinstance(part, (int, float)) for part in value)
        return f"{name} {parts if numbers else sorted(parts)}"
    return name


def shape_of(value: Any) -> str:
    """Return the class of a container, and its length or its keys."""
    name = name_of(type(value))
    if isinstance(value, (dict, types.MappingProxyType)):
        return f"{name} of {list(map(_key_text, value))}"
    return f"{name} of {len(value)}" if hasattr(value, "__len__") else name


def keys_of(value: Any) -> str:
    """Return the class of a dict, and its keys in sorted order."""
    name, keys = name_of(type(value)), value if isinstance(value, dict) else ()
    texts = sorted(repr(key) if type(key) is str else fingerprint(key, 1) for key in keys)
    return f"{name} of [{', '.join(texts)}]"


def _key_text(key: Any) -> str:
    return f"str {key!r}" if type(key) is str else fingerprint(key, 1)


def members_text(kind: type, names: frozenset[str]) -> str:
    """Describe the members that a class defines itself: which of `names`, and of the methods that
    affect attribute lookup."""
    if is_immutable(kind):
        return ""
    used = (n for n in vars(kind) if n in names or finds_attributes(n))
    return f" {[f'{n}{_taken_from(kind, n)}' for n in sorted(used)]}{_body_text(kind)}"


def is_immutable(kind: type) -> bool:
    """Return whether a class is one of Python's own, whose attributes nobody can set."""
    return bool(kind.__flags__ & _IMMUTABLE)


def is_code(value: Any) -> bool:
    """Return whether a value is a class or function that may be changed."""
    function = isinstance(value, types.FunctionType)
    return function or (isinstance(value, type) and not is_immutable(value))


_IMMUTABLE = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE (Include/object.h)."""


def _taken_from(kind: type, name: str) -> str:
    """Describe a member that is a function written elsewhere, whatever its name; "" otherwise: code
    is found by its name, and data is read."""
    value = vars(kind)[name]
    function = getattr(value, "fget", getattr(value, "__func__", value))
    if not isinstance(function, types.FunctionType) or is_tracers(function.__code__.co_filename):
        return ""
    own = _is_written(function.__code__, kind.__module__, f"{kind.__qualname__}.{name}")
    return "" if own else f" {fingerprint(function, 2)}"


def is_own(function: types.FunctionType) -> bool:
    """Return whether a function is the one that its module defines under its name, and not one from
    elsewhere that has taken the name."""
    name = function.__qualname__
    return "<" not in name and _is_written(function.__code__, function.__module__, name)


def _is_written(code: types.CodeType, module: str, name: str) -> bool:
    """Return whether code belongs to the function of this name in a module's file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return (code.co_qualname, code.co_filename) == (name, file)


def finds_attributes(name: str) -> bool:
    """Return whether code may call a method of this name without naming it, as operators, loops,
    truth tests and calls do."""
    return name == "forward" or (name[:2] == name[-2:] == "__" and name not in TOLD_OTHERWISE)


_OF_EACH_CLASS = frozenset(
    "__dict__ __doc__ __module__ __qualname__ __slotnames__ __weakref__".split()
)
TOLD_OTHERWISE = _OF_EACH_CLASS | frozenset(
    "__abstractmethods__ __annotate__ __annotate_func__ __annotations__ __annotations_cache__ "
    "__conditional_annotations__ __constants__ __firstlineno__ __orig_bases__ __parameters__ "
    "__static_attributes__ __type_params__".split()
)
"""Class members that are no methods. `copy` and `pickle` keep slot names in classes."""


def _body_text(kind: type) -> str:
    """Describe the members of a class that its name does not find, as others may share it. "" for a
    class that is found, whose code is looked up by name."""
    around = _described.get()
    if is_known_module(kind.__module__) or kind in around or _named(kind) is kind:
        return ""
    token = _described.set((*around, kind))
    try:
        return f" with {_digest_of_members(kind, vars(kind).keys() - _OF_EACH_CLASS)}"
    finally:
        _described.reset(token)


def metaclass_text(kind: type) -> str:
    """Describe a metaclass that is neither Python's nor torch's: its classes may use its members,
    which no other guard covers."""
    top = kind.__module__.partition(".")[0]
    if top in sys.stdlib_module_names or is_known_module(kind.__module__):
        return ""
    names = [name for name in vars(kind) if name[:2] != "__"]
    return f" of {name_of(kind)} {_digest_of_members(kind, names)}"


def _digest_of_members(kind: type, names: Iterable[str]) -> str:
    members = [(name, _member_text(vars(kind)[name])) for name in sorted(names)]
    return digest_of(repr(members).encode())


_described: ContextVar[tuple[type, ...]] = ContextVar("described", default=())
"""The classes whose bodies are being described, as members may lead back to them (`super()`)."""


def _named(kind: type) -> Any:
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def _member_text(value: Any) -> str:
    if isinstance(value, property):
        return str([_member_text(part) for part in (value.fget, value.fset, value.fdel)])
    if isinstance(value, (staticmethod, classmethod)):
        return f"{type(value).__name__} {_member_text(value.__func__)}"
    # A class in a class, or in a closure, may lead back here.
    return f"class {name_of(value)}" if isinstance(value, type) else fingerprint(value, 2)


def is_known_module(module: str) -> bool:
    """Return whether a module is `builtins`, torch's or ours, whose classes stay unchanged."""
    return module.partition(".")[0] in ("torch", "builtins", "kernelmill")


# ---- code -----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def code_digest(code: types.CodeType) -> str:
    """Return the digest of the behaviour of code: bytecode, constants and names."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    _feed(code, state.update)
    return state.hexdigest()


def _feed(code: types.CodeType, feed: Callable[[bytes], None]) -> None:
    names = (
        code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount,
        code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_name,
    )  # fmt: skip
    feed(code.co_code)
    feed(code.co_exceptiontable)
    feed(repr(names).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _feed(constant, feed)
        else:
            feed(fingerprint(constant).encode())
        feed(b"\0")


def cells_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the closure variables of a function that have values."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def function_digest(function: types.FunctionType, deep: int = 3) -> str:
    """Return the digest of code, defaults and closure, down to functions `deep` levels below."""
    defaults = fingerprint(function.__defaults__, deep), fingerprint(function.__kwdefaults__, deep)
    cells = [
        f"{name} {'itself' if value is function else fingerprint(value, deep)}"
        for name, value in cells_of(function).items()
    ]
    data = (*defaults, cells)
    return digest_of(f"{code_digest(function.__code__)} {data}".encode())


# ---- installed packages ----------------------------------------------------------------------
